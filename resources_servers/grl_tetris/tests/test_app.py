from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from random import Random, getstate
from typing import Any

import pytest

from nemo_gym.testing.episodes import Episode, Player, check_episode, check_recorded_episodes, player
from nemo_gym.testing.verdicts import check_example_rows, new_server, rows_of
from resources_servers.grl_tetris.app import GrlTetrisResourcesServer, TetrisSessionState, TetrisSettings
from resources_servers.grl_tetris.audit import reference
from resources_servers.grl_tetris.board import BOXES, FLAT, SINGLE, SQUARE, UPRIGHT, Board, Piece, piece_sequence
from resources_servers.grl_tetris.generate_data import main
from resources_servers.grl_tetris.solver import shortest_win

FOLDER = Path(__file__).parents[1]
# Single cells on a board of two columns and three rows: they fall in the left column, and two of them fill a row.
ROW = {"seed": 0, "box_type": 1, "dim_x": 2, "dim_y": 3}
L, R, D = (f"<action>{word}</action>" for word in ("Left", "Right", "Down"))
WON = {"success": True, "dropped": True, "action_is_valid": True}
LOST = {"success": False, "dropped": True}

CASES = [
    Episode("one reply", ROW, [D + D + R + D + D], 9.5, {**WON, "num_actions_applied": 5}),
    Episode("one move a reply", ROW, [D, D, R, D, D], 9.5, {**WON, "num_actions_applied": 1, "actions": ["Down"]}),
    Episode("by number", ROW, ["".join(f"<action>{n}</action>" for n in (2, 2, 1, 2, 2))], 9.5, WON),
    Episode("what follows the end", ROW, [D + D + R + D + D + L * 50], 9.5, {**WON, "num_actions_applied": 5}),
    Episode("all in one column", ROW, [D * 9], -0.4, {**LOST, "action_is_effective": False}),
    Episode("against the wall", ROW, [L], -0.1, {"action_is_effective": False, "dropped": False}, terminated=False),
    Episode("a move", ROW, [R], -0.1, {"action_is_effective": True, "success": False}, terminated=False),
    Episode("others are passed over", ROW, ["<action>spin</action>" + D + "down"], -0.1, {"actions": ["Down"]}, False),
    Episode("huge", ROW, [L * 30_000], -1000.0, {"num_actions_applied": 10_000}, terminated=False),
    Episode("in the metadata", {"verifier_metadata": ROW}, [D + D + R + D + D], 9.5, WON),
    Episode("dim_board is not read", {**ROW, "dim_board": [9, 9]}, [D + D + R + D + D], 9.5, WON),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rewards(case: Episode) -> None:
    check_episode(GrlTetrisResourcesServer, case)


INVALID = [
    "",
    "Left",
    "<action>spin</action>",
    '<action>{"a": {"a": "Left"}}</action>',
    "<action>3</action>",
    "<" * 9_999,
]


@pytest.mark.parametrize("text", INVALID, ids=lambda text: text[:20])
@pytest.mark.parametrize(("policy", "reward"), [("penalty", -0.1), ("noop", 0.0)])
def test_a_reply_without_an_action(text: str, policy: str, reward: float) -> None:
    told = {"action_is_valid": False, "success": False, "total_reward": reward}
    case = Episode("x", ROW, [text], reward, told, terminated=False, settings={"on_invalid_action": policy})
    assert "Tetris\nX_\n__\n__\n\n" in check_episode(GrlTetrisResourcesServer, case)["observation"]
    strict = player(GrlTetrisResourcesServer, ROW)
    assert "no action" in strict.play([text])["detail"] and strict.status == 400


def board_of(*lines: str, pieces: tuple[Piece, ...] = ()) -> Board:
    """From _ empty, # fallen, X falling."""
    signs = {(r, c): sign for r, line in enumerate(lines) for c, sign in enumerate(line)}
    fallen, cells = ({place for place, sign in signs.items() if sign == kind} for kind in "#X")
    return Board(len(lines[0]), len(lines), list(pieces), fallen, frozenset(cells))


MOVES = [
    # before, action, pieces to come, after, reward, (dropped, success, done)
    (("_X_", "___", "___"), 0, (), ("X__", "___", "___"), -0.1, (False, False, False)),
    (("_X_", "___", "___"), 1, (), ("__X", "___", "___"), -0.1, (False, False, False)),
    (("_X_", "___", "___"), 2, (), ("___", "_X_", "___"), -0.1, (False, False, False)),
    (("___", "_X_", "___"), 2, (FLAT,), ("XX_", "___", "_#_"), -0.1, (True, False, False)),
    (("___", "#X_", "#__"), 0, (), ("___", "#X_", "#__"), -0.1, (False, False, False)),
    (("___", "_X_", "#__"), 0, (SINGLE,), ("_X_", "#__", "#__"), -0.1, (True, False, False)),
    (("X__", "___", "##_"), 2, (), ("___", "#__", "##_"), -0.1, (True, False, True)),
    (("X__", "#__"), 2, (SINGLE,), ("#__", "#__"), -0.1, (True, False, True)),
    (("__X", "__X", "##_"), 2, (), ("___", "___", "__#"), 9.9, (True, True, True)),
    (("XX_", "XX_", "__#", "__#"), 2, (), ("___", "XX_", "XX#", "__#"), -0.1, (False, False, False)),
    (("___", "XX_", "XX#", "__#"), 2, (), ("___", "___", "___", "___"), 19.9, (True, True, True)),
    (("X__", "X__", "___"), 1, (), ("_X_", "_X_", "___"), -0.1, (False, False, False)),
    (("_X_", "_#_", "___"), 0, (), ("X__", "_#_", "___"), -0.1, (False, False, False)),
    (("X__", "_#_", "_#_"), 1, (SINGLE,), ("_#_", "_#_", "_#_"), -0.1, (True, False, True)),
    (("___", "X__", "_#_"), 2, (UPRIGHT,), ("_X_", "_X_", "##_"), -0.1, (True, False, False)),
    (("___", "_X_", "_#_"), 0, (), ("___", "X__", "_#_"), -0.1, (False, False, False)),
    (("___", "_X_", "_#_"), 2, (UPRIGHT,), ("___", "_#_", "_#_"), -0.1, (True, False, True)),
]


@pytest.mark.parametrize(("before", "action", "pieces", "after", "reward", "ends"), MOVES)
def test_moves(
    before: tuple[str, ...],
    action: int,
    pieces: tuple[Piece, ...],
    after: tuple[str, ...],
    reward: float,
    ends: tuple[bool, bool, bool],
) -> None:
    game = TetrisSessionState(field_=board_of(*before, pieces=pieces), settings=TetrisSettings())
    found, info = game.play([action])
    assert found == pytest.approx(reward) and (info["dropped"], info["success"], game.done) == ends
    assert game.board() == "\n".join(after)


def test_what_the_model_sees() -> None:
    played = player(GrlTetrisResourcesServer, ROW)
    board, _, legend = played.reset()["observation"].partition("\n\n")
    assert board == "Tetris\nX_\n__\n__" and legend.startswith("_ empty, # fallen, X the piece that falls.")
    assert legend.endswith("Left, Right or Down, as in <action>Left</action><action>Down</action>.")
    assert played.step(D + D + R + D)["observation"].startswith("Tetris\n__\n_X\n#_\n\n")
    assert played.step(D)["observation"] == "__\n__\n__", "the bare board at the end"


def test_rewards_add_up_in_the_info() -> None:
    played = player(GrlTetrisResourcesServer, ROW)
    last = played.play([D, D, R, D + D])
    assert last["info"]["total_reward"] == pytest.approx(9.5) and sum(played.rewards) == pytest.approx(9.5)


def test_without_a_reset_there_is_no_game() -> None:
    played = player(GrlTetrisResourcesServer, ROW)
    assert "call /reset first" in played.step(L)["detail"] and played.status == 400


def test_a_game_that_is_over_is_not_kept() -> None:
    server = new_server(GrlTetrisResourcesServer)
    Player(server.setup_webserver(), ROW).play([D * 9])
    assert len(server.session_state) == 0


# --- rows and pieces --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"seed": "x"}, "The row's seed: "),
        ({"dim_x": 1}, "The row's dim_x: "),
        ({"dim_y": 10**9}, "The row's dim_y: "),
        ({"box_type": 4}, "The row's box_type: "),
        ({"grid_lookup": {"0": "_"}}, "The row's grid_lookup: "),
        ({"action_lookup": [1]}, "The row's action_lookup: "),
    ],
)
def test_a_row_that_can_t_be_played_is_a_sentence(row: dict[str, Any], told: str) -> None:
    played = player(GrlTetrisResourcesServer, row)
    assert played.reset()["detail"].startswith(told) and played.status == 400


def test_rows_go_before_the_configuration() -> None:
    config = {"dim_x": 3, "grid_lookup": {0: ".", 1: "f", 2: "p"}}
    row = {"seed": 0, "box_type": 1, "dim_y": 2, "action_lookup": {"0": "West", "1": "East", "2": "South"}}
    shown = player(GrlTetrisResourcesServer, row, env_config=config).reset()["observation"]
    assert shown.startswith("Tetris\n.p.\n...\n\n") and "<action>West</action>" in shown


def test_pieces_are_the_same_again_and_come_about_equally_often() -> None:
    pieces = piece_sequence(Random(5), BOXES[3], 600)
    assert pieces == piece_sequence(Random(5), BOXES[3], 600) != piece_sequence(Random(6), BOXES[3], 600)
    assert all(180 < count < 220 for count in Counter(pieces).values()) and len(set(pieces)) == 3
    assert (BOXES[1], BOXES[2], BOXES[3]) == ((SINGLE,), (UPRIGHT, FLAT), (UPRIGHT, FLAT, SQUARE))


def test_the_generators_of_the_process_are_left_alone() -> None:
    before = getstate()
    player(GrlTetrisResourcesServer, {"seed": 1}).reset()
    assert getstate() == before


@pytest.mark.parametrize("number", range(10))
def test_a_game_comes_to_an_end(number: int) -> None:
    """There are pieces enough: one more than would fill the board."""
    chance = Random(number)
    game = new_server(GrlTetrisResourcesServer).new_game({"seed": number, "box_type": 1, "dim_x": 5, "dim_y": 4})
    moves = 0
    while not game.done:
        game.play([chance.choice((0, 1, 2, 2))])
        moves += 1
        assert moves < 500
    assert game.field_.pieces


def test_a_win_is_found_where_there_is_one() -> None:
    assert shortest_win(board_of("__X", "__X", "##_")) == [2]
    assert shortest_win(board_of("X__", "___", "___")) is None


def test_rows_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "train.jsonl"
    monkeypatch.setattr(sys, "argv", ["x", "--count", "2", "--rows", "6", "--box-type", "2", "--output", str(output)])
    main()
    fields = [(row["seed"], row["dim_x"], row["dim_y"], row["box_type"]) for row in rows_of(output)]
    assert fields == [(0, 4, 6, 2), (1, 4, 6, 2)]


def test_example_rows_can_be_won() -> None:
    for row in check_example_rows(FOLDER):
        turn: Any = reference(row)
        played = player(GrlTetrisResourcesServer, row)
        assert played.play([turn])["info"]["success"] is True and sum(played.rewards) > 9


def test_example_rollouts_end_as_they_did() -> None:
    check_recorded_episodes(GrlTetrisResourcesServer, FOLDER, rewards=[19.4, 9.1, 9.3, -0.3, 19.0])
