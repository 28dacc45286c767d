"""Instructions that are tasks of their own: `custom:`."""

from __future__ import annotations

import csv
import io
import re
import string
import unicodedata
from itertools import pairwise

from nemo_gym.verifiers.instructions.language import EDGES, WITHOUT_PUNCTUATION, sentences
from nemo_gym.verifiers.instructions.registry import Instructions
from nemo_gym.verifiers.instructions.vocabulary import CAPITALS_FROM_THE_NORTH

CUSTOM = Instructions()

_AFRICAN_COUNTRIES = 52
_QUESTION = re.compile(r"\n*Question \d+[.|):;]?\s*")
_OPTION = re.compile(r"[A-Ea-e][.|)]\s*\w")
_SPECIAL_FIELD = re.compile(r'".*[^\d\w\s].*"')
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_NAPOLEON = range(1769, 1822)


@CUSTOM.named("custom:multiples")
def counts_in_sevens(text: str) -> bool:
    return re.findall(r"\d+", text) == [str(number) for number in range(14, 51, 7)]


@CUSTOM.named("custom:mcq_count_length")
def asks_four_longer_questions(text: str) -> bool:
    """Each with five options, and nothing before the first."""
    if not text.startswith("Question"):
        return False
    questions = [question.strip().split("\n") for question in _QUESTION.split(text) if question.strip()]
    options = [[bool(_OPTION.match(line.strip())) for line in lines] for lines in questions]
    if len(questions) != 4 or any(sum(each) != 5 for each in options):
        return False
    stems = [lines[: each.index(True)] for lines, each in zip(questions, options, strict=True)]
    lengths = [len(" ".join(line.strip() for line in stem).strip()) for stem in stems]
    return all(a < b for a, b in pairwise(lengths))


@CUSTOM.named("custom:reverse_newline")
def lists_africa_backwards(text: str) -> bool:
    """From Zimbabwe on, in 52 lines or more."""
    lines = [bare for line in text.split("\n") if (bare := line.strip(EDGES))]
    begin = next((place for place, line in enumerate(lines) if "Zimbabwe" in line), len(lines))
    countries = [plain(line) for line in lines[begin:]]
    return len(countries) >= _AFRICAN_COUNTRIES and countries == sorted(countries, reverse=True)


@CUSTOM.named("custom:word_reverse")
def names_the_eagle_by_word(text: str) -> bool:
    """The words backwards, as one sentence."""
    backwards = " ".join(reversed(text.lower().translate(WITHOUT_PUNCTUATION).split()))
    return "bald eagle" in backwards and sentences(backwards) == [backwards]


@CUSTOM.named("custom:character_reverse")
def names_the_eagle_by_letter(text: str) -> bool:
    return "bald eagle"[::-1] in text.lower()


@CUSTOM.named("custom:sentence_alphabet")
def begins_sentences_with_the_alphabet(text: str) -> bool:
    bare = [sentence.lstrip(string.punctuation + string.whitespace) for sentence in sentences(text)]
    return [sentence[:1].lower() for sentence in bare] == list(string.ascii_lowercase)


@CUSTOM.named("custom:european_capitals_sort")
def lists_capitals_from_the_north(text: str) -> bool:
    capitals = [capital.strip() for capital in plain(text).split(",")]
    return [capital for capital in capitals if capital] == list(CAPITALS_FROM_THE_NORTH)


@CUSTOM.named("custom:csv_city")
def is_city_csv(text: str) -> bool:
    rows = _rows(text)
    return len(rows) == 8 and rows[0] == ["ID", "Country", "City", "Year", "Count"] and _have(5, rows)


@CUSTOM.named("custom:csv_special_character")
def is_product_csv(text: str) -> bool:
    """A quoted field has a special character in it; rows below the first such are not looked at."""
    if not _is_header(text, ("ProductID", "Category", "Brand", "Price", "Stock"), r",[ \t]*"):
        return False
    rows = _rows(text.replace('"', '"""'))
    if len(rows) != 15:
        return False
    for row in rows[1:]:
        if len(row) != 5:
            return False
        if any(map(_SPECIAL_FIELD.match, row)):
            return True
    return False


@CUSTOM.named("custom:csv_quotes")
def is_student_csv(text: str) -> bool:
    """Every field is quoted."""
    if not _is_header(text, ("StudentID", "Subject", "Grade", "Semester", "Score"), r"\t *"):
        return False
    rows = _rows(text.replace('"', '"""'), delimiter="\t")
    fields = [field.strip() for row in rows for field in row]
    return len(rows) == 4 and _have(5, rows) and all(field[:1] == field[-1:] == '"' for field in fields)


@CUSTOM.named("custom:date_format_list")
def lists_dates(text: str) -> bool:
    """Dates in the years in which Napoleon lived."""
    dates = [_DATE.fullmatch(date.strip()) for date in text.strip().split(",")]
    return all(date is not None and _is_date(*map(int, date.groups())) for date in dates)


def plain(text: str) -> str:
    """The text in ASCII: letters without their accents, and nothing that isn't there."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")


def _rows(text: str, delimiter: str = ",") -> list[list[str]]:
    """The rows of CSV; none if it isn't."""
    try:
        return list(csv.reader(io.StringIO(text), delimiter=delimiter))
    except csv.Error:
        return []


def _have(fields: int, rows: list[list[str]]) -> bool:
    return all(len(row) == fields for row in rows)


def _is_header(text: str, names: tuple[str, ...], between: str) -> bool:
    columns = between.join(f'(?:{name}|"{name}")' for name in names)
    return re.fullmatch(columns, text.split("\n", 1)[0].strip()) is not None


def _is_date(year: int, month: int, day: int) -> bool:
    return year in _NAPOLEON and month <= 12 and day <= _DAYS[month - 1]
