from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nemo_gym.testing.episodes import Episode, Player, check_episode, check_recorded_episodes, player
from nemo_gym.testing.responses import call, reasoning
from nemo_gym.testing.verdicts import check_example_rows, new_server
from resources_servers.blackjack.app import BlackjackEnv, Hands, _hand_value, _settled
from resources_servers.blackjack.audit import reference

FOLDER = Path(__file__).parents[1]
HIT, STAND = "<action>hit</action>", "<action>stand</action>"

# Seed 4: 5 and 6 against 3, K, 8; the next card is an 8. Seed 39 loses by standing, and busts with the third card.
CASES = [
    Episode("stand", {"seed": 4}, [STAND], -1.0, {"result": "loss", "player_value": 11, "dealer_value": 21}),
    Episode("hit, stand", {"seed": 4}, [HIT, STAND], 1.0, {"result": "win", "player": "[5, 6, 8]"}),
    Episode("hit until bust", {"seed": 4}, [HIT] * 9, -1.0, {"result": "bust"}),
    Episode("hit only", {"seed": 4}, [HIT], 0.0, {}, terminated=False),
    Episode("nothing", {"seed": 4}, [()], -1.0, {"result": "loss"}),
    Episode("no tag", {"seed": 4}, ["I hit, of course"], -1.0, {"result": "loss"}),
    Episode("first tag", {"seed": 4}, [HIT + STAND, STAND + HIT], 1.0, {"result": "win"}),
    Episode("another tag first", {"seed": 4}, ["<action>double</action>" + HIT, STAND], 1.0, {"result": "win"}),
    Episode("capitals and spaces", {"seed": 4}, ["<Action> HIT\n</ACTION>", STAND], 1.0, {"result": "win"}),
    Episode("several in one tag", {"seed": 4}, ["<action>hit hit</action>"], -1.0, {"result": "loss"}),
    Episode("in its thoughts only", {"seed": 4}, [(reasoning(HIT), "Hm.")], -1.0, {"result": "loss"}),
    Episode("as a call", {"seed": 4}, [(call("hit", '{"action": "hit"}'),)], -1.0, {"result": "loss"}),
    Episode("nested", {"seed": 4}, ["<action>" * 9_999 + "hit" + "</action>" * 9_999, STAND], 1.0),
    Episode("seed 39", {"seed": 39}, [HIT, HIT, STAND], 1.0, {"result": "win"}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rewards(case: Episode) -> None:
    check_episode(BlackjackEnv, case)


@pytest.mark.parametrize(
    ("player_hand", "dealer_hand", "reward", "result"),
    [
        (["K", "9"], ["K", "8"], 1.0, "win"),
        (["K", "8"], ["Q", "8"], 0.0, "draw"),
        (["K", "7"], ["K", "8"], -1.0, "loss"),
        (["A", "A"], ["A", "6"], -1.0, "loss"),
    ],
)
def test_hands_are_compared(player_hand: list[str], dealer_hand: list[str], reward: float, result: str) -> None:
    _, found, is_over, _, info = _settled(Hands(player=player_hand, dealer=dealer_hand))
    assert (found, is_over, info["result"]) == (reward, True, result)
    assert info["dealer"] == f"[{', '.join(dealer_hand)}]", "a dealer with 17 stands"


@pytest.mark.parametrize(
    ("hand", "value"),
    [
        ([], 0),
        (["2", "10"], 12),
        (["J", "Q", "K"], 30),
        (["A", "K"], 21),
        (["A", "A"], 12),
        (["A", "A", "A", "8"], 21),
        (["A", "6", "K"], 17),
        (["A", "K", "Q"], 21),
        (["A", "A", "K", "Q"], 22),
    ],
)
def test_values_of_hands(hand: list[str], value: int) -> None:
    assert _hand_value(hand) == value


def test_what_the_player_sees() -> None:
    assert player(BlackjackEnv, {"seed": 4}).reset() == {
        "observation": "Your hand: [5, 6] = 11\nDealer shows: 3\n"
        "Respond with <action>hit</action> or <action>stand</action>.",
        "info": {"supports_explicit_close": True},
    }


def test_a_seed_gives_the_same_cards_and_none_gives_others() -> None:
    def dealt(row: dict[str, Any]) -> set[str]:
        return {player(BlackjackEnv, row).reset()["observation"] for _ in range(20)}

    assert len(dealt({"seed": 7})) == 1 and len(dealt({})) > 1
    assert dealt({"verifier_metadata": {"seed": 7}}) == dealt({"seed": 7})


@pytest.mark.parametrize("seed", ["x", [1], {"a": 1}, 1.5])
def test_a_seed_that_is_none_is_a_sentence(seed: Any) -> None:
    played = player(BlackjackEnv, {"seed": seed})
    assert played.reset()["detail"].startswith("The row's seed: ") and played.status == 400


def test_without_a_reset_the_hands_are_empty() -> None:
    info = player(BlackjackEnv).step(STAND)["info"]
    assert (info["player"], info["player_value"]) == ("[]", 0) and info["dealer_value"] >= 17


def test_a_hand_that_is_over_is_not_kept() -> None:
    server = new_server(BlackjackEnv)
    played = Player(server.setup_webserver())
    played.reset()
    assert len(server.session_state) == 1
    played.step(STAND)
    assert len(server.session_state) == 0


def test_example_rows_can_be_won_and_are_not_won_by_standing() -> None:
    for row in check_example_rows(FOLDER):
        check_episode(BlackjackEnv, Episode("reference", row, reference(row), 1.0))  # type: ignore[arg-type]
        check_episode(BlackjackEnv, Episode("stand", row, [STAND], -1.0))


def test_example_rollouts_end_as_they_did() -> None:
    check_recorded_episodes(BlackjackEnv, FOLDER, rewards=[1.0, 1.0, -1.0, 1.0, -1.0])
