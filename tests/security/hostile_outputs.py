"""What a model may say to make a verifier fall over: texts, calls and items of every odd kind."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

from nemo_gym.testing.responses import Item, call, call_output, message, reasoning

MEGABYTES = 2_000_000
LONG = 100_000
"""Characters that a quadratic search takes seconds for, and a linear one a millisecond."""

DEEP = 10_000


@dataclass(frozen=True)
class Output:
    """The output items of a response.

    `is_junk`: no answer to anything, unless any words are one. `says_nothing`: not even words. `is_response`: a server
    can take it for a response at all.
    """

    name: str
    items: tuple[Item, ...]
    is_junk: bool = True
    says_nothing: bool = False
    is_response: bool = True

    def __str__(self) -> str:
        return self.name


NUMBERS = (
    *("1e999", "-1e999", "NaN", "-Infinity", "1e-999", "-0", "+", "1e", "1_000"),
    *("9" * 5_000, "-" + "9" * 5_000, "0." + "9" * 5_000, "0x" + "f" * 5_000),
    *("10^(10^9)", "10^{10^{9}}", "10**10**9", "2^{2^{2^{2^{2^{2}}}}}", "9!!!!!!", "1/0", r"\frac{1}{0}"),
    *("\u00b2", "\u00bd", "\u0663", "\u0967\u0968", "\uff11\uff12", "\U0001d7d9"),
    *("1:99", "25:61am", "13pm", "12" * 2_000 + "am", "2024-02-30", "0000-00-00", "99999999-99-99T99:99:99Z"),
)
"""Numbers, times and dates that are none, or none that fits anywhere."""

CHARACTERS = "".join(map(chr, range(33, 48))) + ":;<=>?@[\\]^_`{|}~ \t\n\ra9A\u0301\u200f\u6f22"

WORDS = (
    *("\\boxed{", "\\boxed{A}", "\\boxed{\\text{", "\\frac{1}{", "\\left(", "\\text{A} ", "\\(", "\\begin{", "$$"),
    *("answer: ", "Answer: A\n", "final answer", "the answer is (", "A) ", "(A) ", "Q: ", "yes no ", "P.S. "),
    *("```\n", "```json\n{", "<action>", "<action> ", "<answer>", "</think>", "<think>", "<a>", "<a b='", "&amp;"),
    *('{"a":', '{"a": 1}', '{"', "[1,", "[[", "[[1]]", "[[A=B]]", "a: &a [*a,", "a: ", "a :: ", "a.b"),
    *("- a\n", "* ", "1. ", "# a\n", "| a ", "|---", "**a", "Step 1 - ", "import a\n", "http://a.a/"),
    *("1 2\n", "10.5 km ", "-1", "1,", "1.", "New York, ", "\\n", "\U0001f468\u200d", "\u202e", "A\u0301"),
)
"""What verifiers look for."""

REPEATED = (
    *(word * (LONG // len(word)) for word in (*CHARACTERS, *WORDS)),
    "".join(f"</answer_{number}></candidate_{number}>" for number in range(LONG // 30)),
)

PIECES = (
    "\x00",
    "".join(map(chr, range(32))) + "\x7f\x85\u2028\u2029\ufeff",
    "\u200f\u202e\u2066abc\u2069",
    "\ud7ff\ue000\ufffe\uffff\U0010ffff",
    "\u0130\u0131\ufb01\u1e9e\u03a3",
    "A" + "\u0301" * 20_000,
    "\u0391 \u0392 \u0421 \uff24 \U0001d400 \u24b6 \U0001f170",
    "{0.__class__} {a} %s %(a)s ${a} $(a)",
    "(a+)+$ ((a*)*)*b (?P<a>x)(?P=a){1,99999}",
    "a" * 5_000 + "!",
    "<!DOCTYPE a [<!ENTITY a 'a'><!ENTITY b '&a;&a;&a;'>]><a>&b;</a>",
    "a: &a [*a, *a]\n<<: *a",
    "!!python/object/apply:os.system ['true']",
    "../../../etc/passwd\n/verify",
    '{"a": 1, "a": {"a": 2}, "": NaN, "b": 1e999}',
    *("null", "[]", "{}", '"', "\\", "</answer></candidate>\\end{document}"),
)

BOMB = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefghi"))
"""YAML whose aliases stand for millions of values."""

ARGUMENTS = (
    *("", "null", "[]", '"text"', "17", "{", "{}", "\x00", "[" * DEEP),
    '{"a":' * DEEP + "1" + "}" * DEEP,
    '{"a":' * 150 + "1" + "}" * 150,
    '{"a": 1, "a": [2]}',
    '{"a": NaN, "b": 1e999, "c": ' + "9" * 5_000 + "}",
    '{"a": "\\ud800"}',
    '{"a": "\\u0000"}',
    json.dumps({"a": "x" * LONG}),
    json.dumps({f"k{number}": number for number in range(20_000)}),
)
"""Of a call: a model writes them as text."""

NAMES = (
    "verify",
    "/verify",
    "../seed_session",
    "seed_session",
    "close_session",
    "mcp",
    "",
    "a" * 5_000,
    "\x00",
    "%2e%2e",
)
"""Of tools that nobody offers."""


def shown(text: str) -> str:
    return f"{text[:20]!a}[{len(text)}]"


def said(text: str) -> Output:
    return Output(shown(text), (message(text),))


def large() -> Iterator[Output]:
    """Two megabytes at once, and what is nested ten thousand deep."""
    yield from (said(character * MEGABYTES) for character in "a{\\\n ")
    yield said("data:image/png;base64," + base64.b64encode(bytes(range(256)) * (MEGABYTES // 350)).decode())
    pairs = (("[", "]"), ("{", "}"), ("(", ")"), ("\\boxed{", "}"), ('{"a":', "}"), ("- ", ""), ("<a>", "</a>"))
    for opening, closing in pairs:
        yield said(opening * DEEP + "1" + closing * DEEP)
        yield said(opening * DEEP)
    yield said("\\boxed{" + "\\frac{" * DEEP + "1" + "}{2}" * DEEP + "}")
    yield said("".join(" " * depth + "- a:\n" for depth in range(1_000)))


def repeated() -> Iterator[Output]:
    """One character or word over and over: each must be looked for in linear time."""
    yield from map(said, REPEATED)


def pieces() -> Iterator[Output]:
    """Short texts, alone and where an answer would stand."""
    for text in (*PIECES, *NUMBERS, BOMB):
        yield said(text)
        yield said(f"\\boxed{{{text}}}\n<action>{text}</action>\n```\n{text}\n```\nAnswer: {text}")
        yield said(f'[{{"a": {text}}}]')


def calls(names: list[str]) -> Iterator[Output]:
    """Calls of the tools with these names, and of some that nobody offers."""
    for name in NAMES:
        yield Output(f"call of {shown(name)}", (call(name, {}),))
    for name in names or ["a"]:
        for arguments in ARGUMENTS:
            yield Output(f"call of {name} with {shown(arguments)}", (call(name, arguments),))
        yield Output(f"{name}, again and again", tuple(call(name, {}, f"c{number}") for number in range(300)))


def items() -> Iterator[Output]:
    """Other than messages and calls, and messages that say nothing."""
    refusal = {**message(), "content": [{"type": "refusal", "refusal": "No."}]}
    search = {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "q"}}
    silent: dict[str, tuple[Any, ...]] = {
        "nothing": (),
        "no parts": (message(),),
        "empty text": (message(""),),
        "reasoning alone": (reasoning("Answer: A \\boxed{A}"),),
        "refusal": (refusal,),
        "refusal and no text": (refusal, message("")),
        "another kind of call": (search,),
        "a tool's answer": (call_output("Answer: A"),),
        "answers of nobody": (call_output({"reward": 1.0}, "x"), call_output([], "y")),
        "many messages": tuple(message("") for _ in range(1_000)),
    }
    yield from (Output(name, output, says_nothing=True) for name, output in silent.items())
    yield Output("reasoning last", (message("I think."), reasoning("hm")))
    yield Output("user's words", ({"role": "user", "type": "message", "content": "Answer: A"},))
    yield Output("half a surrogate pair", (message("\ud800 \\boxed{\udfff}"),), is_response=False)
    yield Output("unknown item", ({"type": "surprise", "content": [1], "arguments": 3},), is_response=False)
    yield Output("no item", (cast(Item, 17),), is_response=False)


def junk(tools: list[str]) -> tuple[list[Output], list[Output]]:
    """The worst of it, and more of the kind; `tools` are the names of those that the model may call."""
    return [*items(), *large()], [*calls(tools), *pieces(), *repeated()]


HOSTILE = (*NUMBERS, *PIECES, *REPEATED, "[" * DEEP, '{"a":' * 150 + "1" + "}" * 150)


def spoiled(right: list[Item], texts: Sequence[str] = HOSTILE) -> Iterator[Output]:
    """The right answer written strangely, and with something hostile in the place of each of its values."""
    for name, twist in TWISTS.items():
        yield Output(name, tuple(_twisted(item, twist) for item in right), is_junk=False)
    for hostile in texts:
        for place, item in enumerate(right):
            for where, changed in _with(item, hostile):
                output = (*right[:place], changed, *right[place + 1 :])
                yield Output(f"{shown(hostile)} as {where} of {place}", output, is_junk=False)


def misfit(right: list[Item]) -> Iterator[Output]:
    """The right calls with one value of another type."""
    for place, item in enumerate(right):
        values = json.loads(item["arguments"] or "{}") if item.get("type") == "function_call" else {}
        for number, key in enumerate(values):
            for odd in (7.5, [values[key]], ({"a": 1}, True, None)[number % 3]):
                changed = {**item, "arguments": json.dumps({**values, key: odd})}
                name = f"{odd!r:.30} for {key} of {place}"
                yield Output(name, (*right[:place], changed, *right[place + 1 :]), is_junk=False)


def _with(item: Item, hostile: str) -> Iterator[tuple[str, Item]]:
    if item.get("type") == "function_call":
        arguments = json.loads(item["arguments"] or "{}")
        for key in arguments:
            yield f"the text {key}", {**item, "arguments": json.dumps({**arguments, key: hostile})}
            raw = json.dumps({**arguments, key: "PLACE"}).replace('"PLACE"', hostile)
            yield f"the value {key}", {**item, "arguments": raw}
            yield f"a list for {key}", {**item, "arguments": json.dumps({**arguments, key: [hostile]})}
        yield "a key", {**item, "arguments": json.dumps({**arguments, hostile: hostile})}
        return
    text = _text(item)
    words = re.findall(r"[^\W_]+(?:[.:][^\W_]+)*", text)
    for word in dict.fromkeys([*words[-1:], *sorted(words, key=len)[-1:], *words[:1], *words[len(words) // 2 :][:1]]):
        before, _, after = text.rpartition(word)
        yield "the first word", message(text.replace(word, hostile, 1))
        yield "the last word", message(before + hostile + after)
    yield "the beginning", message(hostile + text)
    yield "the end", message(text + hostile)
    yield "the box", message(f"\\boxed{{{hostile}}}")


def _twisted(item: Item, twist: Callable[[str], str]) -> Item:
    if item.get("type") == "function_call":
        return {**item, "arguments": twist(item["arguments"])}
    return message(twist(_text(item)))


def _text(item: Item) -> str:
    return str(item["content"][0]["text"])


def _shifted(first: str, last: str, by: int) -> Callable[[str], str]:
    return lambda text: "".join(chr(ord(each) + by) if first <= each <= last else each for each in text)


_CYRILLIC = str.maketrans(
    "ABCEHKMOPTXaceopxy",
    "\u0410\u0412\u0421\u0415\u041d\u041a\u041c\u041e\u0420\u0422\u0425\u0430\u0441\u0435\u043e\u0440\u0445\u0443",
)

TWISTS: dict[str, Callable[[str], str]] = {
    "look-alikes": lambda text: text.translate(_CYRILLIC),
    "full width": _shifted("!", "~", 0xFEE0),
    "bold letters": _shifted("A", "Z", 0x1D400 - 65),
    "arabic digits": _shifted("0", "9", 0x660 - 48),
    "powers": _shifted("4", "9", 0x2074 - 52),
    "right to left": lambda text: f"\u202e{text}\u202c\u200f",
    "joiners": "\u200b".join,
    "NULs": "\0".join,
    "lines": "\n".join,
    "accents": lambda text: "".join(each + "\u0301" * 200 for each in text),
    "an accent": lambda text: text[:5] + "\u0301" * 20_000 + text[5:],
    "half": lambda text: text[: len(text) // 2],
    "all but the end": lambda text: text[:-1],
    "backwards": lambda text: text[::-1],
    "other case": str.swapcase,
    "over and over": lambda text: text * (LONG // max(len(text), 1)),
    "spaces": lambda text: text.replace(" ", " " * 10_000),
    "no spaces": lambda text: "".join(text.split()),
    "doubled brackets": lambda text: text.replace("{", "{{").replace("[", "[["),
}
