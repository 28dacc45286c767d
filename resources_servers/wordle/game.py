"""The rules of Wordle, and what each guess is worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal

PENALTY_WRONG_LENGTH = 0.02
PENALTY_NOT_A_WORD = 0.02
PENALTY_REPEATED_GUESS = 0.2
PENALTY_IGNORE_GREEN = 0.05
PENALTY_IGNORE_YELLOW = 0.03
PENALTY_USE_ELIMINATED = 0.02
LEAST_FOR_A_WIN = 0.1

Outcome = Literal["win", "loss", "incomplete"]


@dataclass
class WordleGameState:
    """A game under way. `known_greens` are by place from 0; `total` is what the guesses are worth so far."""

    target: str
    max_turns: int = 6
    turn: int = 0
    total: float = 0.0
    won: bool = False
    guesses: list[str] = field(default_factory=list)
    feedback_history: list[str] = field(default_factory=list)
    known_greens: dict[int, str] = field(default_factory=dict)
    known_yellows: set[str] = field(default_factory=set)
    eliminated_letters: set[str] = field(default_factory=set)

    @property
    def game_over(self) -> bool:
        return self.won or self.turn >= self.max_turns

    @property
    def outcome(self) -> Outcome:
        if self.won:
            return "win"
        return "loss" if self.game_over else "incomplete"


def calculate_win_reward(turns: int) -> float:
    """What a win with the n-th guess is worth; with the first, which is luck, as much as with the third."""
    return 2.0 - 0.2 * ((3 if turns == 1 else turns) - 1)


def feedback_on(guess: str, target: str) -> str:
    """A letter a place: G for the right one, Y for one that belongs elsewhere, _ for one that is in no other place."""
    marks = ["G" if one == other else "_" for one, other in zip(guess, target, strict=True)]
    left = Counter(other for other, mark in zip(target, marks, strict=True) if mark != "G")
    for place, letter in enumerate(guess):
        if marks[place] != "G" and left[letter] > 0:
            marks[place] = "Y"
            left[letter] -= 1
    return "".join(marks)


class WordleGameLogic:
    """The tools of a game, by the words that count as words."""

    def __init__(self, words: Collection[str]) -> None:
        self.words = frozenset(words)

    def submit_guess(self, state: WordleGameState, guess: str) -> dict[str, Any]:
        """Use a turn, whatever the guess is."""
        if state.game_over:
            return self._answer(state, error="The game is over.")
        word = guess.strip().lower()
        state.turn += 1
        feedback: str | None = None
        error: str | None = None
        length = len(state.target)
        if len(word) != length:
            state.total -= PENALTY_WRONG_LENGTH
            error = f"A guess has {length} letters."
        elif word not in self.words:
            state.total -= PENALTY_NOT_A_WORD
            error = "That is not in the word list."
        else:
            feedback = self._take(state, word)
        if state.won:
            state.total = max(state.total + calculate_win_reward(state.turn), LEAST_FOR_A_WIN)
        elif state.outcome == "loss":
            state.total = 0.0
        return self._answer(state, feedback=feedback, error=error)

    def check_word_validity(self, state: WordleGameState, word: str) -> dict[str, Any]:
        """Whether a guess would count as a word, without using a turn."""
        word = word.strip().lower()
        return {"word": word[: 2 * len(state.target)], "valid": len(word) == len(state.target) and word in self.words}

    def get_game_state(self, state: WordleGameState) -> dict[str, Any]:
        """What is known so far."""
        return {
            "turn": state.turn,
            "turns_remaining": state.max_turns - state.turn,
            "guesses": [guess.upper() for guess in state.guesses],
            "feedback_history": list(state.feedback_history),
            "known_greens": {str(place + 1): letter for place, letter in sorted(state.known_greens.items())},
            "known_yellows": sorted(state.known_yellows),
            "eliminated_letters": sorted(state.eliminated_letters),
            "game_over": state.game_over,
            "won": state.won,
        }

    def _take(self, state: WordleGameState, word: str) -> str:
        """The feedback on a word, after which more is known."""
        feedback = feedback_on(word, state.target)
        state.won = word == state.target
        if not state.won:
            state.total -= penalty_of(word, state)
        state.guesses.append(word)
        state.feedback_history.append(feedback)
        for place, (letter, mark) in enumerate(zip(word, feedback, strict=True)):
            if mark == "G":
                state.known_greens[place] = letter
            elif mark == "Y":
                state.known_yellows.add(letter)
        present = {*state.known_greens.values(), *state.known_yellows}
        grey = {letter for letter, mark in zip(word, feedback, strict=True) if mark == "_"}
        state.eliminated_letters |= grey - present
        return feedback

    @staticmethod
    def _answer(state: WordleGameState, *, feedback: str | None = None, error: str | None = None) -> dict[str, Any]:
        return {
            "valid": feedback is not None,
            "feedback": feedback,
            "won": state.won,
            "game_over": state.game_over,
            "turn": state.turn,
            "turns_remaining": state.max_turns - state.turn,
            "error": error,
            "target_word": state.target.upper() if state.game_over else None,
        }


def penalty_of(word: str, state: WordleGameState) -> float:
    """What it costs to guess against what is known."""
    repeated = PENALTY_REPEATED_GUESS if word in state.guesses else 0.0
    ignored = sum(word[place] != letter for place, letter in state.known_greens.items()) * PENALTY_IGNORE_GREEN
    is_blind = bool(state.known_yellows) and not state.known_yellows.intersection(word)
    eliminated = sum(letter in state.eliminated_letters for letter in word) * PENALTY_USE_ELIMINATED
    return repeated + ignored + is_blind * PENALTY_IGNORE_YELLOW + eliminated
