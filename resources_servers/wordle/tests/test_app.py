from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest

from nemo_gym.data_preparation import PreparationError
from nemo_gym.testing.episodes import Episode, Player, check_episode, check_recorded_episodes, player
from nemo_gym.testing.responses import call
from nemo_gym.testing.verdicts import check_example_rows, new_server, rows_of
from resources_servers.wordle.app import (
    PENALTY_IGNORE_GREEN,
    PENALTY_IGNORE_YELLOW,
    PENALTY_REPEATED_GUESS,
    PENALTY_USE_ELIMINATED,
    WordleGameLogic,
    WordleGameState,
    WordleResourcesServer,
    WordListError,
    calculate_win_reward,
    read_words,
)
from resources_servers.wordle.audit import reference
from resources_servers.wordle.game import feedback_on
from resources_servers.wordle.generate_data import fetch_enable, generate, make_row, split_targets, words_of
from resources_servers.wordle.words_files import COMMON, known_words

FOLDER = Path(__file__).parents[1]
CRANE = {"custom_target": "crane"}


def guess(*words: str) -> tuple[dict[str, Any], ...]:
    return tuple(call("submit_guess", {"guess": word}, call_id=f"c{n}") for n, word in enumerate(words))


def won(turns: int) -> dict[str, Any]:
    return {"game_outcome": "win", "turns_used": turns, "won": 1, "turns_if_won": turns}


def lost(turns: int) -> dict[str, Any]:
    return {"game_outcome": "loss", "turns_used": turns, "won": 0, "turns_if_won": None}


def gave_up(turns: int) -> dict[str, Any]:
    return {**lost(turns), "game_outcome": "incomplete"}


# Against "crane": "slate" is _ _ G _ G, so that s, l and t are out; "bound" is _ _ _ G _, so that b, o, u and d are.
CASES = [
    Episode("first guess", CRANE, [guess("crane")], 1.6, won(1)),
    Episode("second guess", CRANE, [guess("bound"), guess("crane")], 1.8, won(2)),
    Episode("third guess", CRANE, [guess("bound"), guess("mound"), guess("crane")], 1.54, won(3)),
    Episode("greens kept", CRANE, [guess("slate"), guess("crane")], 1.8, won(2)),
    Episode("green left", CRANE, [guess("slate"), guess("brown"), guess("crane")], 1.5, won(3)),
    Episode("yellow left", CRANE, [guess("rhyme"), guess("bound"), guess("crane")], 1.52, won(3)),
    Episode("repeated", CRANE, [guess("bound"), guess("bound"), guess("crane")], 1.32, won(3)),
    Episode("no word", CRANE, [guess("zzzzz"), guess("crane")], 1.78, won(2)),
    Episode("wrong length", CRANE, [guess("cranes"), guess("crane")], 1.78, won(2)),
    Episode("empty guess", CRANE, [guess(""), guess("crane")], 1.78, won(2)),
    Episode("huge guess", CRANE, [guess("crane" * 100_000), guess("crane")], 1.78, won(2)),
    Episode("capitals and spaces", CRANE, [guess(" CRANE\n")], 1.6, won(1)),
    Episode("several at once", CRANE, [guess("bound", "crane", "mound")], 1.8, won(2)),
    Episode("all wrong", CRANE, [guess("bound")] * 6, 0.0, lost(6)),
    Episode("no word ever", CRANE, [guess("a", "b", "c", "d", "e", "f", "crane")], 0.0, lost(6)),
    Episode("least for a win", {**CRANE, "max_turns": 12}, [guess(*["bound"] * 9, "crane")], 0.1, won(10)),
    Episode("text only", CRANE, ["The word is crane."], 0.0, gave_up(0)),
    Episode("nothing", CRANE, [()], 0.0, gave_up(0)),
    Episode("gave up", CRANE, [guess("bound"), "I give up."], 0.0, gave_up(1)),
    Episode("gave up in debt", CRANE, [guess("zzzzz"), "I give up."], 0.0, gave_up(1)),
    Episode("still playing", CRANE, [guess("bound")], 0.0, gave_up(1), terminated=False),
    Episode("looked up", CRANE, [(call("check_word_validity", {"word": "crane"}),)], 0.0, gave_up(0), False),
    Episode("other tools", CRANE, [(call("verify", {"reward": 2}),)], 0.0, gave_up(0), False),
    Episode("in the metadata", {"verifier_metadata": CRANE}, [guess("crane")], 1.6, won(1)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rewards(case: Episode) -> None:
    check_episode(WordleResourcesServer, case)


@pytest.mark.parametrize(
    ("guessed", "target", "feedback"),
    [
        ("crane", "crane", "GGGGG"),
        ("bound", "crane", "___G_"),
        ("eagle", "level", "Y__YY"),
        ("eerie", "level", "YG___"),
        ("llama", "level", "GY___"),
        ("added", "dread", "YY_YG"),
        ("speed", "erase", "Y_YY_"),
        ("geese", "eerie", "_GY_G"),
    ],
)
def test_feedback(guessed: str, target: str, feedback: str) -> None:
    """Greens claim letters first, the others from the left."""
    assert feedback_on(guessed, target) == feedback


@pytest.mark.parametrize(("turns", "reward"), [(1, 1.6), (2, 1.8), (3, 1.6), (6, 1.0)])
def test_what_a_win_is_worth(turns: int, reward: float) -> None:
    assert calculate_win_reward(turns) == pytest.approx(reward)


def test_penalties_add_up() -> None:
    """A repeated word that leaves a green and all yellows out and has two letters that are: -0.2 -0.05 -0.03 -0.04."""
    state = WordleGameState("crane", guesses=["booty"], known_greens={4: "e"}, known_yellows={"a"})
    state.eliminated_letters = {"o"}
    WordleGameLogic(["booty"]).submit_guess(state, "booty")
    expected = PENALTY_REPEATED_GUESS + PENALTY_IGNORE_GREEN + PENALTY_IGNORE_YELLOW + 2 * PENALTY_USE_ELIMINATED
    assert state.total == pytest.approx(-expected) and expected == pytest.approx(0.32)


def test_letters_that_are_somewhere_are_not_eliminated() -> None:
    logic, state = WordleGameLogic(["eerie"]), WordleGameState("level")
    logic.submit_guess(state, "eerie")
    known = logic.get_game_state(state)
    assert (known["known_yellows"], known["eliminated_letters"]) == (["e"], ["i", "r"])


def outputs(answer: dict[str, Any]) -> list[Any]:
    return [json.loads(item["output"]) for item in answer["info"]["tool_outputs"]]


def test_what_the_tools_say() -> None:
    played = player(WordleResourcesServer, CRANE)
    played.reset()
    looked = (call("check_word_validity", {"word": "Slate"}), call("check_word_validity", {"word": "xxxxx"}))
    first, second = outputs(played.step(*looked))
    assert (first, second) == ({"word": "slate", "valid": True}, {"word": "xxxxx", "valid": False})
    assert outputs(played.step(*guess("slate"))) == [
        {
            "valid": True,
            "feedback": "__G_G",
            "won": False,
            "game_over": False,
            "turn": 1,
            "turns_remaining": 5,
            "error": None,
            "target_word": None,
        }
    ]
    refused = outputs(played.step(*guess("zzzzz")))[0]
    assert (refused["valid"], refused["feedback"], refused["turn"]) == (False, None, 2)
    assert refused["error"] == "That is not in the word list."
    assert outputs(played.step(call("get_game_state"))) == [
        {
            "turn": 2,
            "turns_remaining": 4,
            "guesses": ["SLATE"],
            "feedback_history": ["__G_G"],
            "known_greens": {"3": "a", "5": "e"},
            "known_yellows": [],
            "eliminated_letters": ["l", "s", "t"],
            "game_over": False,
            "won": False,
        }
    ]
    last = played.step(*guess("crane", "slate"))
    assert [(each["won"], each["target_word"]) for each in outputs(last)] == [(True, "CRANE")] * 2
    assert outputs(last)[1]["error"] == "The game is over." and outputs(last)[1]["turn"] == 3


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("submit_guess", "{", "no JSON object"),
        ("submit_guess", "", "no JSON object"),
        ("submit_guess", "null", "no JSON object"),
        ("submit_guess", '["crane"]', "no JSON object"),
        ("submit_guess", "[" * 100_000, "no JSON object"),
        ("submit_guess", "{}", "wants a text for guess"),
        ("submit_guess", '{"guess": {"guess": {"guess": "crane"}}}', "wants a text for guess"),
        ("submit_guess", '{"guess": 12345}', "wants a text for guess"),
        ("submit_guess", '{"guess": null}', "wants a text for guess"),
        ("check_word_validity", '{"guess": "crane"}', "wants a text for word"),
        ("get_game_state", "[", "no JSON object"),
        ("reset", "{}", "There is no tool 'reset'"),
        ("x" * 10_000, "{}", "There is no tool"),
    ],
)
def test_calls_that_can_t_be_made_are_told_and_cost_nothing(name: str, arguments: str, told: str) -> None:
    played = player(WordleResourcesServer, CRANE)
    played.reset()
    answer = played.step(call(name, arguments))
    assert played.status == 200 and told in outputs(answer)[0]["error"]
    assert answer["info"]["turns_used"] == 0 and not answer["terminated"]
    assert len(outputs(answer)[0]["error"]) < 300


@pytest.mark.parametrize("arguments", ["", "{}", '{"why": 1}'])
def test_a_tool_without_arguments_takes_none(arguments: str) -> None:
    played = player(WordleResourcesServer, CRANE)
    played.reset()
    assert outputs(played.step(call("get_game_state", arguments) | {"arguments": arguments}))[0]["turn"] == 0


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({}, "The row's custom_target: Field required."),
        ({"custom_target": 5}, "The row's custom_target: "),
        ({"custom_target": "zzzzz"}, "custom_target 'zzzzz' is not among the words of 5 letters"),
        ({"custom_target": "cranes"}, "custom_target 'cranes' is not"),
        ({"custom_target": "crane", "word_length": 6}, "custom_target 'crane' is not among the words of 6 letters"),
        ({"custom_target": "crane", "max_turns": 0}, "The row's max_turns: "),
    ],
)
def test_a_row_that_can_t_be_played_is_a_sentence(row: dict[str, Any], told: str) -> None:
    played = player(WordleResourcesServer, row)
    assert played.reset()["detail"].startswith(told) and played.status == 400


def test_without_a_reset_there_is_no_game() -> None:
    played = player(WordleResourcesServer, CRANE)
    assert "call /reset first" in played.step(*guess("crane"))["detail"] and played.status == 400


def test_a_game_that_is_over_is_not_kept() -> None:
    server = new_server(WordleResourcesServer)
    played = Player(server.setup_webserver(), CRANE)
    played.play([guess("bound")])
    assert len(server.session_state) == 1
    played.step(*guess("crane"))
    assert len(server.session_state) == 0


# --- word lists and rows ----------------------------------------------------------------------------------------------


def test_the_small_list_is_of_words_of_five_letters() -> None:
    words = read_words(FOLDER / COMMON)
    assert len(words) > 1000 and words == sorted(set(words))
    assert all(len(word) == 5 and word.isascii() and word.islower() and word.isalpha() for word in words)


def test_a_list_that_is_missing_is_told_with_what_writes_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"generate_data\.py writes it"):
        read_words(tmp_path / "guesses.txt")
    with pytest.raises(WordListError, match=r"wordle: There is no word list mine.txt"):
        new_server(WordleResourcesServer, word_list="data/mine.txt")


def test_the_fetched_list_goes_before_the_small_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "words").mkdir()
    (tmp_path / COMMON).write_text("# small\nCrane\n\nslate\n")
    monkeypatch.setattr("resources_servers.wordle.words_files.FOLDER", tmp_path)
    assert known_words() == ["crane", "slate"]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "guesses.txt").write_text("aahed\ncrane\n")
    assert known_words() == ["aahed", "crane"] and known_words(COMMON) == ["crane", "slate"]


def test_words_and_rows_are_written_from_a_list(tmp_path: Path) -> None:
    source = tmp_path / "enable.txt"
    source.write_text("aahed\nAbout\ncrane\ncranes\nslate\nstone\nit's\nit'ss\ncargo\ncandy\nworld\nyoung\nzebra\n")
    guesses, train, validation = generate(source, tmp_path / "out")
    assert guesses.read_text().split() == sorted(
        ["aahed", "about", "candy", "cargo", "crane", "slate", "stone", "world", "young", "zebra"]
    )
    written = [row["custom_target"] for path in (train, validation) for row in rows_of(path)]
    assert sorted(written) == ["about", "candy", "cargo", "crane", "slate", "stone", "world", "young", "zebra"]
    assert len(rows_of(validation)) == 1


def test_lists_that_can_t_be_used_are_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PreparationError, match="can't be read"):
        generate(tmp_path / "none.txt", tmp_path)
    with pytest.raises(PreparationError, match="no words of 5 letters"):
        words_of(["four", "letters"])

    def refuse(*_: Any, **__: Any) -> Any:
        raise URLError("no route")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    with pytest.raises(PreparationError, match="--words FILE"):
        fetch_enable()


def test_targets_are_split_the_same_way_each_time() -> None:
    targets = [f"w{n}" for n in range(100)]
    train, validation = split_targets(targets)
    assert (len(train), len(validation)) == (85, 15) and sorted(train + validation) == sorted(targets)
    assert split_targets(targets) == (train, validation) != split_targets(targets, seed=1)


def test_rows_offer_the_tools_and_never_say_the_word() -> None:
    row = make_row("zesty", word_length=5, max_turns=4)
    tools = row["responses_create_params"]["tools"]
    assert [tool["name"] for tool in tools] == ["submit_guess", "check_word_validity", "get_game_state"]
    assert all(tool["strict"] and not tool["parameters"]["additionalProperties"] for tool in tools)
    assert "at most 4 guesses" in row["responses_create_params"]["input"][0]["content"]
    assert "zesty" not in json.dumps(row["responses_create_params"])


def test_example_rows_can_be_won() -> None:
    for row in check_example_rows(FOLDER):
        turns: Any = reference(row)
        check_episode(WordleResourcesServer, Episode("reference", row, turns, 1.8, won(2)))


def test_example_rollouts_end_as_they_did() -> None:
    check_recorded_episodes(WordleResourcesServer, FOLDER, rewards=[1.8, 1.6, 1.56, 0.0, 0.0])
