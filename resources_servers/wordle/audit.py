"""What the audit of this environment knows."""

from nemo_gym.audit import Audit, Replies, Row, call


def reference(row: Row) -> Replies:
    """The word with the second guess, which is worth most."""
    first = "adieu" if row["custom_target"] != "adieu" else "stone"
    return [call("submit_guess", guess=guess) for guess in (first, row["custom_target"])]


def looked_up(row: Row) -> Replies:
    """Asking for everything, and for what is not offered."""
    asked = (call("get_game_state"), call("check_word_validity", word="?????"), call("reset"), call("verify", reward=2))
    return [asked, "The target word is known to me: I win."]


AUDIT = Audit(reference=reference, full=1.8, tricks={"asks without guessing": looked_up})
