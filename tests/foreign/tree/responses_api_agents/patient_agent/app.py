import sys

from fastapi import Request, Response

from nemo_gym.base_responses_api_agent import Body
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig


class PatientAgentConfig(SimpleAgentConfig):
    patience: int = 2


class PatientAgent(SimpleAgent):
    config: PatientAgentConfig

    async def responses(
        self,
        request: Request,
        response: Response,
        body: NeMoGymResponseCreateParamsNonStreaming = Body(),
    ) -> NeMoGymResponse:
        for _ in range(self.config.patience):
            answer = await super().responses(request, response, body)
            if "later" not in answer.output_text:
                break
        answer.metadata = (answer.metadata or {}) | {"ray": str("ray" in sys.modules)}
        return answer


if __name__ == "__main__":
    PatientAgent.run_webserver()
