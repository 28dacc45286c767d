"""What a model may say to make a verifier fall over: texts, calls and items of every odd kind."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nemo_gym.testing.responses import Item, call, call_output, message, reasoning

MEGABYTES = 2_000_000
LONG = 100_000
"""Characters with which a quadratic search takes a minute and a linear one a millisecond."""

DEEP = 10_000

NUMBERS = (
    "1e999",
    "-1e999",
    "NaN",
    "-Infinity",
    "9" * 5_000,
    "-" + "9" * 5_000,
    "0." + "9" * 5_000,
    "1e-999",
    "10^(10^9)",
    "10^{10^{9}}",
    "10**10**9",
    "2^{2^{2^{2^{2^{2}}}}}",
    "9!!!!!!",
    "1/0",
    r"\frac{1}{0}",
    "0x" + "f" * 5_000,
    "1_000",
    "²",
    "½",
    "٣",
    "१२",
    "１２",
    "𝟙",
    "-0",
    "+",
    "1e",
    "1:99",
    "25:61am",
    "99999999-99-99T99:99:99Z",
    "0000-00-00",
    "2024-02-30",
    "13pm",
    "12" * 2_000 + "am",
)
"""Numbers, times and dates that are none, or none that fits anywhere."""

CHARACTERS = "".join(map(chr, range(33, 48))) + ":;<=>?@[\\]^_`{|}~ \t\n\ra9A\u0301\u200f漢"

REPEATED = (
    "\\boxed{",
    "\\boxed{A}",
    "\\boxed{\\text{",
    "\\frac{1}{",
    "\\left(",
    "\\text{A} ",
    "answer: ",
    "Answer: A\n",
    "final answer",
    "the answer is (",
    "```\n",
    "```json\n{",
    "<action>",
    "<action> ",
    "<answer>",
    "</think>",
    "<think>",
    "<a>",
    "<a b='",
    "&amp;",
    '{"a":',
    '{"a": 1}',
    '{"',
    "[1,",
    "[[",
    "[[1]]",
    "- a\n",
    "* ",
    "1. ",
    "# a\n",
    "| a ",
    "|---",
    "**a",
    "a: ",
    "a :: ",
    "Step 1 - ",
    "$$",
    "\\(",
    "\\n",
    "\\begin{",
    "1 2\n",
    "10.5 km ",
    "-1",
    "1,",
    "1.",
    "New York, ",
    "a.b",
    "A) ",
    "(A) ",
    "a: &a [*a,",
    "\U0001f468\u200d",
    "\u202e",
    "A\u0301",
    "[[A=B]]",
    "import a\n",
    "P.S. ",
    "http://a.a/",
    "Q: ",
    "yes no ",
)
"""What verifiers look for, over and over: each must be found in linear time."""

PIECES = (
    "\x00",
    "".join(map(chr, range(32))) + "\x7f\x85\u2028\u2029\ufeff",
    "\u200f\u202e\u2066abc\u2069",
    "\ud7ff\ue000\ufffe\uffff\U0010ffff",
    "\u0130\u0131\ufb01\u1e9e\u03a3",
    "A" + "\u0301" * 20_000,
    "Α Β С Ｄ 𝐀 Ⓐ 🅰",
    "{0.__class__} {a} %s %(a)s ${a} $(a)",
    "(a+)+$ ((a*)*)*b (?P<a>x)(?P=a){1,99999}",
    "a" * 5_000 + "!",
    "&lol9; <!DOCTYPE a [<!ENTITY a 'a'>]><a>&a;</a>",
    "a: &a [*a, *a]\n<<: *a",
    "!!python/object/apply:os.system ['true']",
    "../../../etc/passwd\n/verify",
    '{"a": 1, "a": {"a": 2}, "": NaN, "b": 1e999}',
    "null",
    "[]",
    "{}",
    '"',
    "\\",
    "</answer></candidate>\\end{document}",
)


@dataclass(frozen=True)
class Output:
    """The output items of a response. `is_junk`: says nothing that could be right by luck."""

    name: str
    items: tuple[Item, ...]
    is_junk: bool = True

    def __str__(self) -> str:
        return self.name


def shown(text: str) -> str:
    return f"{text[:20]!a}({len(text)})"


def said(text: str, *, is_junk: bool = True) -> Output:
    return Output(shown(text), (message(text),), is_junk)


def large() -> Iterator[Output]:
    """Two megabytes at once, and what is nested ten thousand deep."""
    for character in "a{\\\n ":
        yield said(character * MEGABYTES)
    blob = base64.b64encode(bytes(range(256)) * (MEGABYTES // 350)).decode()
    yield said(f"data:image/png;base64,{blob}")
    for opening, closing in (("[", "]"), ("{", "}"), ("(", ")"), ("\\boxed{", "}"), ('{"a":', "}"), ("- ", ""), ("<a>", "</a>")):
        yield said(opening * DEEP + "1" + closing * DEEP)
        yield said(opening * DEEP)
    yield said("\\boxed{" + "\\frac{" * DEEP + "1" + "}{2}" * DEEP + "}")
    yield said("".join(" " * depth + "- a:\n" for depth in range(1_000)))


def repeated() -> Iterator[Output]:
    """One character or word, a hundred thousand characters long."""
    for word in (*CHARACTERS, *REPEATED):
        yield said(word * (LONG // len(word)))


def pieces() -> Iterator[Output]:
    """Short texts, alone and where an answer would stand."""
    for text in (*PIECES, *NUMBERS):
        yield said(text)
        yield said(f"\\boxed{{{text}}}\n<action>{text}</action>\n```\n{text}\n```\nAnswer: {text}")
        yield said(f'[{{"a": {text}}}]')


def calls(names: list[str]) -> Iterator[Output]:
    """Calls of tools: those with `names`, and some that nobody offers."""
    reserved = ("verify", "/verify", "../seed_session", "seed_session", "close_session", "mcp", "", "a" * 5_000, "\x00")
    for name in reserved:
        yield Output(f"call {shown(name)}", (call(name, {}),))
    for name in names or ["a"]:
        for arguments in ARGUMENTS:
            yield Output(f"call {name} {shown(arguments)}", (call(name, arguments),))
        yield Output(f"{name}, again and again", tuple(call(name, {}, f"c{number}") for number in range(300)))


ARGUMENTS = (
    "",
    "null",
    "[]",
    '"text"',
    "17",
    "{",
    "{}",
    "[" * DEEP,
    '{"a":' * DEEP + "1" + "}" * DEEP,
    '{"a":' * 150 + "1" + "}" * 150,
    '{"a": 1, "a": [2]}',
    '{"a": NaN, "b": 1e999, "c": ' + "9" * 5_000 + "}",
    '{"a": "\\ud800"}',
    '{"a": "\\u0000"}',
    json.dumps({"a": "x" * LONG}),
    json.dumps({f"k{number}": number for number in range(20_000)}),
    "\x00",
)


def items() -> Iterator[Output]:
    """Other than messages and calls, and messages that say nothing."""
    refusal = {**message(), "content": [{"type": "refusal", "refusal": "No."}]}
    search = {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "q"}}
    yield Output("nothing", ())
    yield Output("no parts", (message(),))
    yield Output("empty text", (message(""),))
    yield Output("reasoning alone", (reasoning("Answer: A \\boxed{A}"),))
    yield Output("reasoning last", (message("I think."), reasoning("hm")))
    yield Output("refusal", (refusal,))
    yield Output("refusal and text", (refusal, message("")))
    yield Output("another kind of call", (search,))
    yield Output("unknown item", ({"type": "surprise", "content": [1], "arguments": 3},))
    yield Output("a tool's answer", (call_output("Answer: A"),))
    yield Output("answers of nobody", (call_output({"reward": 1.0}, "x"), call_output([], "y")))
    yield Output("user's words", ({"role": "user", "type": "message", "content": "Answer: A"},))
    yield Output("many messages", tuple(message("") for _ in range(2_000)))
    yield Output("half a surrogate pair", (message("\ud800 \\boxed{\udfff}"),))
    yield Output("no item", (17,))  # type: ignore[arg-type]


def everything(names: list[str]) -> list[Output]:
    return [*large(), *repeated(), *pieces(), *calls(names), *items()]


def spoiled(right: list[Item], hostile: str) -> Iterator[Output]:
    """The right answer with something hostile in the place of one of its values."""
    name = shown(hostile)
    for place, item in enumerate(right):
        for number, (what, changed) in enumerate(_with(item, hostile)):
            yield Output(f"{name} as {what} {number}", (*right[:place], changed, *right[place + 1 :]), False)


def _with(item: Item, hostile: str) -> Iterator[tuple[str, Item]]:
    if item.get("type") == "function_call":
        arguments = json.loads(item["arguments"] or "{}")
        for key in arguments:
            yield key, {**item, "arguments": json.dumps({**arguments, key: hostile})}
            raw = json.dumps({**arguments, key: "PLACE"}).replace('"PLACE"', hostile)
            yield f"{key}, raw", {**item, "arguments": raw}
            yield f"{key} in a list", {**item, "arguments": json.dumps({**arguments, key: [hostile]})}
        yield "key", {**item, "arguments": json.dumps({**arguments, hostile: hostile})}
        return
    text = item["content"][0]["text"]
    words = re.findall(r"[^\W_]+(?:[.:][^\W_]+)*", text)
    for word in dict.fromkeys([*words[-1:], *sorted(words, key=len)[-1:], *words[:1], *words[len(words) // 2 :][:1]]):
        yield "word", message(text.replace(word, hostile, 1))
        before, _, after = text.rpartition(word)
        yield "last word", message(before + hostile + after)
    yield "beginning", message(hostile + text)
    yield "end", message(text + hostile)
    yield "box", message(f"\\boxed{{{hostile}}}")


def twisted(right: list[Item]) -> Iterator[Output]:
    """The right answer written strangely."""
    def each(change: Any) -> tuple[Item, ...]:
        return tuple(
            {**item, "arguments": change(item["arguments"])} if item.get("type") == "function_call" else message(change(item["content"][0]["text"]))
            for item in right
        )
    for name, change in TWISTS.items():
        yield Output(name, each(change), False)


TWISTS = {
    "look-alikes": lambda text: text.translate(str.maketrans("ABCEHKMOPTXaceopxy", "АВСЕНКМОРТХасеорху")),
    "full width": lambda text: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text),
    "bold letters": lambda text: "".join(chr(0x1D400 + ord(c) - 65) if "A" <= c <= "Z" else c for c in text),
    "arabic digits": lambda text: text.translate(str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")),
    "powers": lambda text: text.translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")),
    "right to left": lambda text: f"\u202e{text}\u202c\u200f",
    "joiners": lambda text: "\u200b".join(text),
    "NULs": lambda text: "\0".join(text),
    "accents": lambda text: "".join(c + "\u0301" * 200 for c in text),
    "accent": lambda text: text[:5] + "\u0301" * 20_000 + text[5:],
    "half": lambda text: text[: len(text) // 2],
    "but for the end": lambda text: text[:-1],
    "backwards": lambda text: text[::-1],
    "other case": lambda text: text.swapcase(),
    "over and over": lambda text: text * (LONG // max(len(text), 1)),
    "on lines": lambda text: "\n".join(text),
    "spaces": lambda text: text.replace(" ", " " * 10_000),
    "no spaces": lambda text: "".join(text.split()),
    "doubled brackets": lambda text: text.replace("{", "{{").replace("[", "[["),
}
