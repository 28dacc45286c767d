"""What the audit of this environment knows."""

from random import Random

from nemo_gym.audit import Audit, Replies, Row


def reference(row: Row) -> Replies:
    from resources_servers.grl_tetris.board import BOXES, Board, piece_sequence
    from resources_servers.grl_tetris.solver import shortest_win

    columns, rows = row["dim_x"], row["dim_y"]
    board = Board(columns, rows, piece_sequence(Random(row["seed"]), BOXES[row["box_type"]], columns * rows + 1))
    board.bring_next()
    win = shortest_win(board)
    return None if win is None else "".join(f"<action>{action}</action>" for action in win)


AUDIT = Audit(
    reference=reference,
    full=9.0,
    overrides=("++grl_tetris.resources_servers.grl_tetris.on_invalid_action=penalty",),
)
