"""One hand of blackjack against the dealer: +1 for a win, 0 for a draw, -1 for a loss."""

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from nemo_gym.base_resources_server import BaseResourcesServerConfig, NeMoGymResponse
from resources_servers.blackjack.task_data import TaskData
from resources_servers.gymnasium import GymnasiumServer, StepResult, extract_text, tagged_actions, task_of
from resources_servers.gymnasium.fixture import episode_fixture

RANKS = (*map(str, range(2, 11)), "J", "Q", "K", "A")
DEALER_STANDS_AT = 17
CHOICES = ("hit", "stand")


@dataclass
class Hands:
    """What lies on the table, and the deck, which has no end."""

    deck: Random = field(default_factory=Random)
    player: list[str] = field(default_factory=list)
    dealer: list[str] = field(default_factory=list)

    def draw(self) -> str:
        return self.deck.choice(RANKS)

    def shown(self) -> str:
        """What the player sees."""
        return (
            f"Your hand: {_as_text(self.player)} = {_hand_value(self.player)}\n"
            f"Dealer shows: {self.dealer[0] if self.dealer else '?'}\n"
            "Respond with <action>hit</action> or <action>stand</action>."
        )


class BlackjackEnv(GymnasiumServer):
    config: BaseResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True
    explicit_close: ClassVar[bool] = True

    async def reset(self, metadata: dict[str, Any], session_id: str | None = None) -> tuple[str | None, dict[str, Any]]:
        """Deal two cards each. HTTPException 400 for a seed that is none."""
        hands = Hands(Random(task_of(TaskData, metadata).seed))
        for hand in (hands.player, hands.dealer):
            hand.extend((hands.draw(), hands.draw()))
        self.session_state[session_id] = hands
        return hands.shown(), {}

    async def step(
        self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: str | None = None
    ) -> StepResult:
        """Hit or stand, as the first tag says that says either; stand without one."""
        hands = self.session_state.get(session_id) or Hands()
        if tagged_actions(extract_text(action), CHOICES)[:1] != ["hit"]:
            return _settled(hands)
        hands.player.append(hands.draw())
        value = _hand_value(hands.player)
        if value > 21:
            return None, -1.0, True, False, {"result": "bust", "player": _as_text(hands.player), "value": value}
        return hands.shown(), 0.0, False, False, {}


def _settled(hands: Hands) -> StepResult:
    """The dealer draws, and the hands are compared."""
    while _hand_value(hands.dealer) < DEALER_STANDS_AT:
        hands.dealer.append(hands.draw())
    player, dealer = _hand_value(hands.player), _hand_value(hands.dealer)
    if dealer > 21 or player > dealer:
        result, reward = "win", 1.0
    elif player == dealer:
        result, reward = "draw", 0.0
    else:
        result, reward = "loss", -1.0
    info = {
        "result": result,
        "player": _as_text(hands.player),
        "player_value": player,
        "dealer": _as_text(hands.dealer),
        "dealer_value": dealer,
    }
    return None, reward, True, False, info


def _hand_value(hand: list[str]) -> int:
    """Aces count 11, or 1 where that would be too much."""
    values = [11 if rank == "A" else int(rank) if rank.isdecimal() else 10 for rank in hand]
    total, aces = sum(values), hand.count("A")
    while total > 21 and aces:
        total, aces = total - 10, aces - 1
    return total


def _as_text(hand: list[str]) -> str:
    return f"[{', '.join(hand)}]"


VERIFIER_FIXTURE = episode_fixture(BlackjackEnv, Path(__file__).parent / "tests" / "verifier_cases.jsonl")


if __name__ == "__main__":
    BlackjackEnv.run_webserver()
