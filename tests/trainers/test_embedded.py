"""The embedded model hands out tokens that a trainer accepts."""

import pytest

from tests.e2e.harness import ROOT
from tests.trainers.conftest import Started
from tests.trainers.readers import read_as_nemo_rl, training_messages
from tests.trainers.test_in_process import choice_rows

EMBEDDED = ROOT / "responses_api_models/llama_cpp_model"
_CONFIGS = (ROOT / "resources_servers/mcqa/configs/mcqa.yaml", EMBEDDED / "configs/llama_cpp_model.yaml")


@pytest.mark.skipif(
    not (EMBEDDED / ".venv/bin/python").exists(), reason="needs what the README's first command downloads"
)
def test_tokens_of_the_embedded_model(started: Started) -> None:
    model = {"responses_api_models": {"llama_cpp_model": {"return_token_id_information": True}}}
    gym = started(config_paths=list(map(str, _CONFIGS)), policy_model=model)
    results = gym.run_rollouts(choice_rows(2))
    for result in results:
        assert read_as_nemo_rl(result) in (0.0, 1.0)
        ((prompt, generated, logprobs),) = training_messages(result)
        assert len(prompt) > 10 and generated and all(value <= 0.0 for value in logprobs)
