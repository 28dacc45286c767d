"""The query language of EDGAR's full-text search, as SQLite's FTS5 understands it."""

from __future__ import annotations

import re

from resources_servers.sec_local_index.edgar_search_service import EdgarArgumentError

_TOKEN = re.compile(r'\s*(-?)(?:"([^"]*)"|([^\s"]+))')
_MAX_TERMS = 64


def translate_query(query: str) -> str:
    """An FTS5 expression: terms must all occur, `OR` parts alternatives, `NOT` or a leading `-` excludes, quotes hold a
    phrase together, and a trailing `*` stands for any ending.

    Raises EdgarArgumentError for parentheses, `AND`, a `*` elsewhere, an open quote, and alternatives without a term.
    """
    if query.count('"') % 2:
        raise EdgarArgumentError('a quotation mark has no partner: write phrases as in "net income"')
    alternatives: list[_Alternative] = [_Alternative()]
    excluded = False
    for count, (minus, phrase, word) in enumerate(_TOKEN.findall(query)):
        if count >= _MAX_TERMS:
            raise EdgarArgumentError(f"the query has more than {_MAX_TERMS} terms")
        if word == "OR" and not minus:
            _require(not excluded, "NOT needs a term after it")
            alternatives.append(_Alternative())
        elif word == "NOT" and not minus:
            _require(not excluded, "NOT needs a term after it")
            excluded = True
        else:
            alternatives[-1].add(_term(phrase, word), excluded=excluded or bool(minus))
            excluded = False
    _require(not excluded, "NOT needs a term after it")
    return " OR ".join(alternative.expression() for alternative in alternatives)


class _Alternative:
    """Terms that must all occur, and terms that must not."""

    def __init__(self) -> None:
        self._wanted: list[str] = []
        self._excluded: list[str] = []

    def add(self, term: str, *, excluded: bool) -> None:
        (self._excluded if excluded else self._wanted).append(term)

    def expression(self) -> str:
        _require(bool(self._wanted), "every side of OR, and the query, needs a term that must occur")
        wanted = " AND ".join(self._wanted)
        if not self._excluded:
            return f"({wanted})"
        return f"(({wanted}) NOT ({' OR '.join(self._excluded)}))"


def _term(phrase: str, word: str) -> str:
    if phrase or not word:
        _require(any(map(str.isalnum, phrase)), "a phrase needs a word in it")
        return f'"{phrase}"'
    _require(word != "AND", "AND is not a word of the query language: terms must all occur anyway")
    _require("(" not in word and ")" not in word, "parentheses are not part of the query language")
    stem = word.removesuffix("*")
    _require("*" not in stem, "a * can only end a word")
    _require(any(map(str.isalnum, stem)), f"there is nothing to search for in {word[:40]!r}")
    return f'"{stem}"*' if stem != word else f'"{stem}"'


def _require(holds: bool, complaint: str) -> None:
    if not holds:
        raise EdgarArgumentError(complaint)
