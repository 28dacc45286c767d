from __future__ import annotations

import sys
from pathlib import Path
from random import Random, getstate, random, seed
from typing import Any

import pytest

from nemo_gym.testing.episodes import Episode, Player, check_episode, check_recorded_episodes, player
from nemo_gym.testing.verdicts import check_example_rows, new_server, rows_of
from resources_servers.grl_sokoban.app import GrlSokobanResourcesServer, SokobanSessionState, SokobanSettings
from resources_servers.grl_sokoban.audit import reference
from resources_servers.grl_sokoban.generate_data import main
from resources_servers.grl_sokoban.levels import Level, make_level
from resources_servers.grl_sokoban.solver import shortest_solution

FOLDER = Path(__file__).parents[1]
# Seed 0 of a room of 6 by 6: the player above the box, the target two places below it.
ROW = {"seed": 0}
BOARD = "######\n###P_#\n####X#\n####_#\n####O#\n######"


def do(word: object) -> str:
    return f"<action>{word}</action>"


DONE = {"success": True, "action_is_effective": True, "action_is_valid": True}
CASES = [
    Episode("solved", ROW, [do("Right"), do("Down"), do("Down")], 10.7, {**DONE, "action_label": "Down"}),
    Episode("by number", ROW, [do(4), do(2), do(2)], 10.7, {**DONE, "action_id": 2}),
    Episode("in words", ROW, ["I go right", "then DOWN!", "2"], 10.7, DONE),
    Episode("a step", ROW, [do("Right")], -0.1, {"success": False, "action_is_effective": True}, False),
    Episode("into a wall", ROW, [do("Up")], -0.1, {"success": False, "action_is_effective": False}, False),
    Episode("first tag", ROW, [do("right") + do("up"), do("down"), do("down")], 10.7, DONE),
    Episode("tag before words", ROW, ["up, up " + do("right"), do("down"), do("down")], 10.7, DONE),
    Episode("tag of something else", ROW, [do("jump") + do("right"), do("down"), do("down")], 10.7, DONE),
    Episode("huge number", ROW, [do(10**60) + " right", do("down"), do("down")], 10.7, DONE),
    Episode("too slow", {**ROW, "max_steps": 3}, [do("right"), do("down"), do("up")], -0.3, {"success": False}),
    Episode("in the metadata", {"verifier_metadata": {**ROW, "max_steps": 1}}, [do("right")], -0.1, {}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rewards(case: Episode) -> None:
    check_episode(GrlSokobanResourcesServer, case)


INVALID = ["", "jump", do("jump"), do({"action": {"go": 5}}), "upwards", "5", "r\u0131ght", "-" * 200_000]


@pytest.mark.parametrize("text", INVALID, ids=lambda text: text[:20])
@pytest.mark.parametrize(("policy", "reward"), [("penalty", -0.1), ("noop", 0.0)])
def test_a_reply_without_an_action(text: str, policy: str, reward: float) -> None:
    with_policy = {"on_invalid_action": policy}
    told = {"action_is_valid": False, "action_is_effective": False, "success": False, "total_reward": reward}
    case = Episode("invalid", ROW, [text], reward, told, terminated=False, settings=with_policy)
    assert BOARD in check_episode(GrlSokobanResourcesServer, case)["observation"]
    strict = player(GrlSokobanResourcesServer, ROW)
    assert "no action" in strict.play([text])["detail"] and strict.status == 400
    assert strict.step(do("right"))["reward"] == -0.1, "and the game is still there"


def test_penalties_count_as_moves_and_noops_do_not() -> None:
    row = {**ROW, "max_steps": 2}
    ended = player(GrlSokobanResourcesServer, row, on_invalid_action="penalty").play(["?", "?"])
    asked = player(GrlSokobanResourcesServer, row, on_invalid_action="noop").play(["?", "?"])
    assert (ended["terminated"], asked["terminated"]) == (True, False)


def level_of(*lines: str) -> Level:
    """From # wall, _ floor, O target, X box, √ box on a target, P player, S player on a target."""
    signs = {(r, c): sign for r, line in enumerate(lines) for c, sign in enumerate(line)}

    def places(kinds: str) -> frozenset[tuple[int, int]]:
        return frozenset(place for place, sign in signs.items() if sign in kinds)

    (player_at,) = places("PS")
    return Level(len(lines), len(lines[0]), places("_OX√PS"), places("O√S"), places("X√"), player_at)


MOVES = [
    # before, action, after, reward, effective
    ("#P_O#X#", "right", "#_PO#X#", -0.1, True),
    ("#PXO#X#", "right", "#_P√#X#", 0.9, True),
    ("#PXO###", "right", "#_P√###", 10.9, True),
    ("#P√_OX#", "right", "#_SXOX#", -1.1, True),
    ("#P√O_X#", "right", "#_S√_X#", -0.1, True),
    ("#P_XX_O", "right", "#_PXX_O", -0.1, True),
    ("#_PXX_O", "right", "#_PXX_O", -0.1, False),
    ("#_PX#_O", "right", "#_PX#_O", -0.1, False),
    ("#_PX#_O", "left", "#P_X#_O", -0.1, True),
    ("#P_X#_O", "left", "#P_X#_O", -0.1, False),
    ("#_SX_#_", "right", "#_OPX#_", -0.1, True),
    ("#P√_X#_", "right", "#_SXX#_", -1.1, True),
]


@pytest.mark.parametrize(("before", "action", "after", "reward", "is_effective"), MOVES)
def test_moves(before: str, action: str, after: str, reward: float, is_effective: bool) -> None:
    game = SokobanSessionState(level=level_of(before), settings=SokobanSettings())
    found, info = game.play([("up", "down", "left", "right").index(action) + 1])
    assert (game.board(), info["action_is_effective"]) == (after, is_effective)
    assert found == pytest.approx(reward) and game.done == info["success"] == (reward > 9)


def test_boxes_move_up_and_down() -> None:
    game = SokobanSessionState(level=level_of("#O#", "#X#", "#P#", "#_#"), settings=SokobanSettings())
    assert game.play([1])[0] == pytest.approx(10.9) and game.board() == "#√#\n#P#\n#_#\n#_#"


def test_what_the_model_sees() -> None:
    played = player(GrlSokobanResourcesServer, ROW)
    title, _, rest = played.reset()["observation"].partition("\n")
    board, _, legend = rest.partition("\n\n")
    assert (title, board) == ("Sokoban", BOARD)
    assert legend.startswith("# wall, _ floor, O target, X box, √ box on a target, P you, S you on a target.")
    assert legend.endswith("Answer with exactly one action, Up, Down, Left or Right, as in <action>Up</action>.")
    last = [played.step(do(word)) for word in ("right", "down", "down")][-1]
    assert last["observation"] == "######\n###__#\n####_#\n####P#\n####√#\n######", "the bare board at the end"


def test_rewards_add_up_in_the_info() -> None:
    played = player(GrlSokobanResourcesServer, ROW)
    last = played.play([do("right"), do("down"), do("down")])
    assert last["info"]["total_reward"] == pytest.approx(10.7) and sum(played.rewards) == pytest.approx(10.7)


async def test_a_step_after_the_end_changes_nothing() -> None:
    server = new_server(GrlSokobanResourcesServer)
    game = server.new_game(ROW)
    game.done, game.total_reward, server.session_state["s"] = True, 4.0, game
    observation, reward, terminated, _, info = await server.step(None, {}, "s")  # type: ignore[arg-type]
    assert (observation, reward, terminated, info) == (BOARD, 0.0, True, {"total_reward": 4.0})


def test_without_a_reset_there_is_no_game() -> None:
    played = player(GrlSokobanResourcesServer, ROW)
    assert "call /reset first" in played.step(do("up"))["detail"] and played.status == 400


def test_a_game_that_is_over_is_not_kept() -> None:
    server = new_server(GrlSokobanResourcesServer)
    Player(server.setup_webserver(), {**ROW, "max_steps": 1}).play([do("up")])
    assert len(server.session_state) == 0


# --- rows and levels --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"seed": "x"}, "The row's seed: "),
        ({"seed": [1]}, "The row's seed: "),
        ({"dim_room": [6]}, "The row's dim_room.1: "),
        ({"dim_room": [3, 6]}, "The row's dim_room: Value error, rooms have 4 to 50"),
        ({"dim_room": [6, 10**9]}, "The row's dim_room: "),
        ({"num_boxes": 0}, "The row's num_boxes: "),
        ({"num_boxes": 10**9}, "The row's num_boxes: "),
        ({"num_boxes": 4, "dim_room": [4, 4]}, "A room of (4, 4) has no room"),
        ({"grid_lookup": {"0": "#"}}, "The row's grid_lookup: "),
        ({"render_mode": "rgb_array"}, "The row's render_mode: "),
        ({"search_depth": "deep"}, "The row's search_depth: "),
    ],
)
def test_a_row_that_can_t_be_played_is_a_sentence(row: dict[str, Any], told: str) -> None:
    played = player(GrlSokobanResourcesServer, row)
    assert played.reset()["detail"].startswith(told) and played.status == 400


def test_rows_go_before_the_configuration() -> None:
    signs = {"0": "W", "1": ".", "2": "t", "3": "B", "4": "b", "5": "p", "6": "q"}
    row = {**ROW, "grid_lookup": signs, "action_lookup": {"1": "North", "2": "South", "3": "West", "4": "East"}}
    shown = player(GrlSokobanResourcesServer, row, env_config={"max_steps": 5}).reset()["observation"]
    assert shown.startswith("Sokoban\nWWWWWW\nWWWp.W\nWWWWbW\n") and "<action>North</action>" in shown
    configured = player(GrlSokobanResourcesServer, ROW, env_config={"dim_room": [8, 9], "num_boxes": 2})
    board = configured.reset()["observation"].split("\n\n")[0].split("\n")[1:]
    assert (len(board), len(board[0])) == (8, 9) and "".join(board).count("X") == 2


@pytest.mark.parametrize("number", range(12))
def test_levels_can_be_solved_and_are_the_same_again(number: int) -> None:
    for rows, columns, boxes in ((6, 6, 1), (5, 8, 1), (7, 7, 2)):
        level = make_level(Random(number), rows, columns, boxes, 100)
        assert level is not None and level == make_level(Random(number), rows, columns, boxes, 100)
        assert level.boxes.isdisjoint(level.targets) and level.player not in level.boxes
        assert len(level.boxes) == len(level.targets) == boxes
        assert all(0 < row < rows - 1 and 0 < column < columns - 1 for row, column in level.floor)
        assert level.boxes | level.targets | {level.player} <= level.floor
        assert shortest_solution(level)


def test_levels_differ_by_seed_and_by_chance_without() -> None:
    def boards(row: dict[str, Any]) -> set[str]:
        return {player(GrlSokobanResourcesServer, row).reset()["observation"] for _ in range(5)}

    assert len({level for n in range(20) if (level := make_level(Random(n), 6, 6, 1, 100))}) > 15
    assert len(boards({"seed": 3})) == 1 and len(boards({})) > 1


def test_the_search_depth_bounds_the_way() -> None:
    for number in range(10):
        level = make_level(Random(number), 6, 6, 1, 3)
        assert level is not None and len(shortest_solution(level) or ()) <= 3


def test_the_generators_of_the_process_are_left_alone() -> None:
    seed(1)
    before = getstate()
    player(GrlSokobanResourcesServer, ROW).reset()
    assert getstate() == before and random() >= 0


def test_a_level_that_can_t_be_solved_has_no_solution() -> None:
    assert shortest_solution(level_of("#####", "#XP_#", "#__O#", "#####")) is None


def test_rows_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "train.jsonl"
    monkeypatch.setattr(
        sys, "argv", ["x", "--count", "3", "--first-seed", "7", "--boxes", "2", "--output", str(output)]
    )
    main()
    assert [(row["seed"], row["num_boxes"], row["dim_room"]) for row in rows_of(output)] == [
        (number, 2, [6, 6]) for number in (7, 8, 9)
    ]


def test_example_rows_can_be_solved() -> None:
    for row in check_example_rows(FOLDER):
        played = player(GrlSokobanResourcesServer, {**row, "max_steps": 100})
        turns: Any = reference(row)
        assert played.play(turns)["info"]["success"] is True and sum(played.rewards) > 10


def test_example_rollouts_end_as_they_did() -> None:
    check_recorded_episodes(GrlSokobanResourcesServer, FOLDER, rewards=[10.7, 10.6, 10.5, -0.6, 10.4])
