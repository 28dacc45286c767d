"""Wordle by tool calls: the fewer guesses a win takes, the better, and guesses against better knowledge cost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from fastapi import HTTPException
from pydantic import PrivateAttr

from nemo_gym.base_resources_server import BaseResourcesServerConfig, NeMoGymResponse
from nemo_gym.errors import GymError
from nemo_gym.verifiers.response_text import function_calls
from nemo_gym.verifiers.tool_calls import parse_arguments
from resources_servers.gymnasium import GymnasiumServer, StepResult, task_of, tool_output
from resources_servers.gymnasium.fixture import episode_fixture
from resources_servers.wordle.game import (
    PENALTY_IGNORE_GREEN,
    PENALTY_IGNORE_YELLOW,
    PENALTY_REPEATED_GUESS,
    PENALTY_USE_ELIMINATED,
    WordleGameLogic,
    WordleGameState,
    calculate_win_reward,
)
from resources_servers.wordle.task_data import TaskData
from resources_servers.wordle.words_files import known_words, read_words

__all__ = [
    "PENALTY_IGNORE_GREEN",
    "PENALTY_IGNORE_YELLOW",
    "PENALTY_REPEATED_GUESS",
    "PENALTY_USE_ELIMINATED",
    "WordleGameLogic",
    "WordleGameState",
    "WordleResourcesServer",
    "WordleResourcesServerConfig",
    "calculate_win_reward",
    "read_words",
]


class WordListError(GymError):
    """The word list can't be read."""


class WordleResourcesServerConfig(BaseResourcesServerConfig):
    """`word_list`: a file in this folder; by default `data/guesses.txt` where it was written, else the small list."""

    word_list: str | None = None


class WordleResourcesServer(GymnasiumServer):
    config: WordleResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True
    explicit_close: ClassVar[bool] = True

    _logic: WordleGameLogic = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        try:
            self._logic = WordleGameLogic(known_words(self.config.word_list))
        except OSError as error:
            raise WordListError(f"{self.config.name}: {error}") from error

    async def reset(self, metadata: dict[str, Any], session_id: str | None = None) -> tuple[str | None, dict[str, Any]]:
        """Begin a game. HTTPException 400 where the row has no word that counts as one."""
        task = task_of(TaskData, metadata)
        target = task.custom_target.strip().lower()
        if len(target) != task.word_length or target not in self._logic.words:
            raise HTTPException(
                400,
                f"custom_target {target[:50]!r} is not among the words of {task.word_length} letters: "
                "resources_servers/wordle/generate_data.py writes the whole list.",
            )
        self.session_state[session_id] = WordleGameState(target, max_turns=task.max_turns)
        return None, {}

    async def step(
        self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: str | None = None
    ) -> StepResult:
        """Answer the calls in order; without any the game is given up. HTTPException 400 without a reset."""
        state = self.session_state.get(session_id)
        if state is None:
            raise HTTPException(400, "There is no game: call /reset first.")
        calls = function_calls(action)
        outputs = [tool_output(call, self._answer(state, call.name, call.arguments)) for call in calls]
        info = {
            "game_outcome": state.outcome,
            "turns_used": state.turn,
            "won": int(state.won),
            "turns_if_won": state.turn if state.won else None,
        }
        if outputs:
            info["tool_outputs"] = outputs
        if calls and not state.game_over:
            return None, 0.0, False, False, info
        return None, max(state.total, 0.0), True, False, info

    def _answer(self, state: WordleGameState, name: str, arguments: str) -> dict[str, Any]:
        """What a tool says; calls that can't be made are errors for the model."""
        tools: dict[str, tuple[Callable[..., dict[str, Any]], tuple[str, ...]]] = {
            "submit_guess": (self._logic.submit_guess, ("guess",)),
            "check_word_validity": (self._logic.check_word_validity, ("word",)),
            "get_game_state": (self._logic.get_game_state, ()),
        }
        if name not in tools:
            return {"error": f"There is no tool {name[:100]!r}. The tools are: {', '.join(tools)}."}
        tool, wanted = tools[name]
        given = parse_arguments(arguments)
        if given.problem is not None and (wanted or arguments.strip()):
            return {"error": f"The arguments of {name} are no JSON object."}
        missing = [key for key in wanted if not isinstance(given.values.get(key), str)]
        if missing:
            return {"error": f"{name} wants a text for {missing[0]}."}
        return tool(state, *(given.values[key] for key in wanted))


VERIFIER_FIXTURE = episode_fixture(WordleResourcesServer, Path(__file__).parent / "tests" / "verifier_cases.jsonl")


if __name__ == "__main__":
    WordleResourcesServer.run_webserver()
