"""One hand of blackjack against the dealer."""
