"""The server with a judge that finds answers equal when they are so in lower case, for cases without a model."""

import re
from typing import Any

from nemo_gym.testing.judges import ScriptedJudge
from nemo_gym.testing.verdicts import new_server
from resources_servers.equivalence_llm_judge.app import LLMJudgeResourcesServer

_ANSWERS = re.compile(r"Answer A \(reference\): (.*)\nAnswer B \(candidate\): (.*)\Z")
_DEFAULT_FLAVOUR = {
    "judge_model_server": {"type": "responses_api_models", "name": "judge"},
    "judge_responses_create_params": {"input": []},
    "extraction_length_threshold": None,
    "check_full_generation_on_fail": False,
    "reward_if_full_generation_succeeds": 0.0,
}


def server(**settings: Any) -> LLMJudgeResourcesServer:
    """The default flavour's server, with other settings where given, and the canned judge."""
    return new_server(LLMJudgeResourcesServer, client=ScriptedJudge(_verdict), **(_DEFAULT_FLAVOUR | settings))


def _verdict(prompt: str) -> str:
    answers = _ANSWERS.search(prompt)
    equal = answers is not None and answers[1].strip().lower() == answers[2].strip().lower()
    return "[[A=B]]" if equal else "[[A!=B]]"
