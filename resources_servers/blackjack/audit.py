"""What the audit of this environment knows."""

from random import Random

from nemo_gym.audit import Audit, Replies, Row

HIT, STAND = "<action>hit</action>", "<action>stand</action>"


def reference(row: Row) -> Replies:
    """As many cards as win against the deck of the row's seed, which nobody at the table can know."""
    from resources_servers.blackjack.app import Hands, _hand_value, _settled

    for cards in range(5):
        hands = Hands(Random(row["seed"]))
        for hand in (hands.player, hands.dealer):
            hand.extend((hands.draw(), hands.draw()))
        hands.player.extend(hands.draw() for _ in range(cards))
        if _hand_value(hands.player) <= 21 and _settled(hands)[1] > 0:
            return [*[HIT] * cards, STAND]
    return None


AUDIT = Audit(reference=reference)
