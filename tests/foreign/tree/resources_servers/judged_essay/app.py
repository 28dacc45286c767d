import re

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.config_types import ModelServerRef
from nemo_gym.judge import call_judge
from nemo_gym.openai_utils import NeMoGymEasyInputMessage, NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.prompt import fill_prompt, load_prompt_config


class JudgedEssayConfig(BaseResourcesServerConfig):
    judge_model_server: ModelServerRef
    judge_responses_create_params: NeMoGymResponseCreateParamsNonStreaming
    judge_prompt: str


class JudgedEssayRunRequest(BaseRunRequest):
    topic: str


class JudgedEssayVerifyRequest(JudgedEssayRunRequest, BaseVerifyRequest):
    pass


class JudgedEssayVerifyResponse(BaseVerifyResponse):
    topic: str
    judge_evaluation: NeMoGymResponse
    verdict: str | None


class JudgedEssayResourcesServer(SimpleResourcesServer):
    config: JudgedEssayConfig

    async def verify(self, body: JudgedEssayVerifyRequest) -> JudgedEssayVerifyResponse:
        prompt = load_prompt_config(self.config.judge_prompt)
        messages = fill_prompt(prompt, {"topic": body.topic, "essay": body.response.output_text})
        params = self.config.judge_responses_create_params.model_copy(deep=True)
        params.input = [NeMoGymEasyInputMessage(**message) for message in messages]
        evaluation = await call_judge(
            self.server_client,
            server_name=self.config.judge_model_server.name,
            url_path="/v1/responses",
            json=params,
            response_model=NeMoGymResponse,
        )
        found = re.search(r"\[\[(GOOD|BAD)\]\]", evaluation.output_text)
        verdict = found.group(1) if found else None
        return JudgedEssayVerifyResponse(
            **body.model_dump(),
            reward=1.0 if verdict == "GOOD" else 0.0,
            judge_evaluation=evaluation,
            verdict=verdict,
        )


if __name__ == "__main__":
    JudgedEssayResourcesServer.run_webserver()
