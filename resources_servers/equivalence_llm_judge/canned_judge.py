"""The server with a judge that finds answers equal when they are so in lower case, for cases without a model."""

import re
from typing import Any, cast

from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import ServerClient
from nemo_gym.verifiers.response_text import last_user_text
from resources_servers.equivalence_llm_judge.app import LLMJudgeResourcesServer, LLMJudgeResourcesServerConfig

_ANSWERS = re.compile(r"Answer A \(reference\): (.*)\nAnswer B \(candidate\): (.*)\Z")


def server(**settings: Any) -> LLMJudgeResourcesServer:
    """The default flavour's server, with other settings where given, and the canned judge."""
    config = LLMJudgeResourcesServerConfig.model_validate(
        {
            "name": "equivalence_llm_judge",
            "host": "127.0.0.1",
            "port": 0,
            "entrypoint": "app.py",
            "judge_model_server": {"type": "responses_api_models", "name": "judge"},
            "judge_responses_create_params": {"input": []},
            "extraction_length_threshold": None,
            "check_full_generation_on_fail": False,
            "reward_if_full_generation_succeeds": 0.0,
        }
        | settings
    )
    return _CannedJudgeServer(config=config, server_client=cast(Any, ServerClient).model_construct())


class _CannedJudgeServer(LLMJudgeResourcesServer):
    async def judge_reply(self, params: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        answers = _ANSWERS.search(last_user_text(params.input))
        equal = answers is not None and answers[1].strip().lower() == answers[2].strip().lower()
        return _reply(self.config.judge_equal_label if equal else self.config.judge_not_equal_label)


def _reply(text: str) -> NeMoGymResponse:
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"id": "msg", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    return NeMoGymResponse.model_validate(
        {
            "id": "resp",
            "created_at": 0.0,
            "model": "canned",
            "object": "response",
            "output": [message],
            "parallel_tool_calls": False,
            "tool_choice": "none",
            "tools": [],
        }
    )
