"""Instructions that a program can check: for each one texts that follow it and texts that don't."""

from __future__ import annotations

import string
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from nemo_gym.verifiers.instructions import (
    IFBENCH,
    IFEVAL,
    TRAINING,
    InstructionError,
    Instructions,
    MissingLibraryError,
)
from nemo_gym.verifiers.instructions.language import plain_sentences, plain_tokens, sentences, tokens, words

AT_LEAST, LESS = {"relation": "at least"}, {"relation": "less than"}
CITIES = "Reykjavik, Helsinki, Oslo, Tallinn, Stockholm, Riga, Moscow, Copenhagen, Vilnius, Minsk, Dublin, Berlin, Amsterdam, Warsaw, London, Brussels, Prague, Luxembourg, Paris, Vienna, Bratislava, Budapest, Vaduz, Chisinau, Bern, Ljubljana, Zagreb"  # noqa: E501
ALPHABET = " ".join(f"{letter}x is here." for letter in string.ascii_uppercase)
AFRICA = "\n".join(["Zimbabwe", *(f"{letter}{n}" for letter in "YXWVUTSRQPONMLKJIHGFEDCBA" for n in (4, 3, 2))][:53])
CSV_CITY = "ID,Country,City,Year,Count\n" + "1,Chad,Sarh,1990,4\n" * 7
CSV_PRODUCT = "ProductID,Category,Brand,Price,Stock\n" + '1,toy,"A&B",3,4\n' * 14
CSV_STUDENT = '"StudentID"\t"Subject"\t"Grade"\t"Semester"\t"Score"\n' + '"1"\t"Art"\t"A"\t"2"\t"9"\n' * 3
OPTIONS = "\nA. x\nB. x\nC. x\nD. x\nE. x\n"
QUESTIONS = "".join(f"Question {n}. {'Why? ' * n}{OPTIONS}\n" for n in range(1, 5))

Row = tuple[Instructions, str, dict[str, Any], list[str], list[str]]
"""The set, the id, the arguments, texts that follow the instruction, and texts that don't."""

CASES: list[Row] = [
    (IFEVAL, "keywords:existence", {"keywords": ["sun", "mo+n"]}, ["Moooon and SUN"], ["sun", "moon"]),
    (IFEVAL, "keywords:frequency", {"keyword": " a ", "frequency": 2, **AT_LEAST}, ["A cat", "aa"], ["a"]),
    (IFEVAL, "keywords:frequency", {"keyword": "a", "frequency": 2, **LESS}, ["a", ""], ["aA"]),
    (IFEVAL, "keywords:forbidden_words", {"forbidden_words": ["sun", "moon"]}, ["sunny"], ["The Sun."]),
    (IFEVAL, "keywords:letter_frequency", {"letter": "E", "let_frequency": 2, "let_relation": "at least"},
     ["Eve", "tree"], ["the"]),
    (IFEVAL, "keywords:letter_frequency", {"letter": "!", "let_frequency": 1, "let_relation": "less than"},
     ["No."], ["No!"]),
    (IFEVAL, "length_constraints:number_sentences", {"num_sentences": 2, **AT_LEAST}, ["One. Two."], ["One, two."]),
    (IFEVAL, "length_constraints:number_sentences", {"num_sentences": 2.0, **LESS}, ["Mr. A"], ["One. Two."]),
    (IFEVAL, "length_constraints:number_paragraphs", {"num_paragraphs": 2},
     ["a\n***\nb", "***a***b***"], ["a", "a***b***c", "a*** ***b"]),
    (IFEVAL, "length_constraints:number_words", {"num_words": 3, **AT_LEAST}, ["one two-three", "it's me"], ["one"]),
    (IFEVAL, "length_constraints:nth_paragraph_first_word",
     {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Then"},
     ["a\n\nthen, b", "a\n\n\"Then b"], ["a\n\nb", "then\n\nb", "a\n\nthen\n\nc", "then"]),
    (IFEVAL, "detectable_content:number_placeholders", {"num_placeholders": 2}, ["[a] [b]"], ["[a]", "[a\n] [b]"]),
    (IFEVAL, "detectable_content:postscript", {"postscript_marker": "P.S."}, ["x\nP.S. y", "p. s. y"], ["PS y"]),
    (IFEVAL, "detectable_content:postscript", {"postscript_marker": "P.P.S"}, ["P.P.S y", "p. p. s"], ["P.S. y"]),
    (IFEVAL, "detectable_content:postscript", {"postscript_marker": "Note:"}, ["x note: y"], ["x note y"]),
    (IFEVAL, "detectable_format:number_bullet_lists", {"num_bullets": 2},
     ["* a\n* b", "- a\n  * b", "x\n*a\n- b"], ["* a", "* a\n* b\n- c", "**a**\n* b"]),
    (IFEVAL, "detectable_format:constrained_response", {}, ["So: My answer is maybe."], ["Yes.", "my answer is yes."]),
    (IFEVAL, "detectable_format:number_highlighted_sections", {"num_highlights": 2},
     ["*a* and *b*", "**a** **b**", "*a* **b**"], ["*a*", "** ** *a*", "*a\n* *"]),
    (IFEVAL, "detectable_format:multiple_sections", {"section_spliter": "Section", "num_sections": 2},
     ["Section 1\nx\nSection 2\ny", "Section1 Section2"], ["Section 1", "Section one Section two"]),
    (IFEVAL, "detectable_format:json_format", {}, ['{"a": 1}', '```json\n[1]\n```', "```\n2\n```"], ["{a: 1}", ""]),
    (IFEVAL, "detectable_format:title", {}, ["<<Joy>>\nx", "a << b >> c"], ["<Joy>", "<< >>", "<<a\nb>>", ">> <<"]),
    (IFEVAL, "combination:two_responses", {}, ["a******b", "******a******b******"],
     ["a", "a****** a", "a************b", "a******b******c"]),
    (IFEVAL, "combination:repeat_prompt", {"prompt_to_repeat": "Say it. "}, [" say it. It."], ["It. Say it."]),
    (IFEVAL, "startend:end_checker", {"end_phrase": "The end."}, ['x the end.', '"x The end."'], ["The end. x"]),
    (IFEVAL, "startend:quotation", {}, [' "a" ', '""'], ['"', '"a', "'a'"]),
    (IFEVAL, "change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "at least"},
     ["NASA and ESA", "A-B C"], ["NASA and Esa"]),
    (IFEVAL, "punctuation:no_comma", {}, ["a; b"], ["a, b"]),
    # those that IFTrain adds
    (TRAINING, "punctuation:no_comma", {}, ["a"], [","]),
    (TRAINING, "copy:copy", {"prompt_to_repeat": "Do it."}, ["do it. "], ["Do it. Done."]),
    (TRAINING, "copy:copying_simple", {"prompt_to_repeat": "Do it."}, ["Do it."], ["Did it."]),
    (TRAINING, "copy:copying_multiple", {"prompt_to_repeat": "x", "N": 2}, ["x\n******\nX"], ["x", "x******y"]),
    (TRAINING, "copy:repeat_phrase", {"phrase": "a big dog", "small_n": 2},
     ["a red dog. a sad dog"], ["a red dog", "a big dog a big dog", "a red dog a big dog", "a red old dog a sad dog"]),
    (TRAINING, "new:copy_span_idx", {"prompt_to_repeat": "abcdef", "n_start": 1, "n_end": 3}, ["BC"], ["bcd"]),
    (TRAINING, "detectable_format:sentence_hyphens", {}, ["One.-Two.", "One."], ["One. - Two.", "well-done."]),
    (TRAINING, "detectable_format:square_brackets", {}, ["[a] [b]"], ["[a] b", "[a b]"]),
    (TRAINING, "detectable_format:bigram_wrapping", {}, ["<<I am>> <<at home>>", "<<I am>> here"],
     ["I am", "<<I am at home>>"]),
    (TRAINING, "keywords:no_adjacent_consecutive", {}, ["a c", "b A", "x"], ["a b", "Zoo a B"]),
    (TRAINING, "keywords:word_once", {"keyword": "fox"}, ["A Fox."], ["fox fox", "cat"]),
    (TRAINING, "keywords:word_count_different_numbers", {"keyword": "x", "frequency": 2, **LESS}, ["x"], ["x x"]),
    (TRAINING, "keywords:exclude_word_harder", {"keyword": "cat"}, ["cats", "the cat."], ["a cat is"]),
    (TRAINING, "keywords:palindrome", {}, ["see anna", "x"], ["no such word"]),
    (TRAINING, "keywords:keyword_specific_position", {"keyword": ["Oslo"], "n": 2, "m": 3},
     ["Hm. It is Oslo."], ["It is Oslo.", "Hm. It is in Oslo.", "Hm. It is oslo.", "Hm. Oslo."]),
    (TRAINING, "keywords:start_end", {}, ["Home is home", "a a"], ["Home is home.", "home"]),
    (TRAINING, "paragraphs:paragraphs", {}, ["a *** b"], ["a", "a *** b *** c"]),
    (TRAINING, "paragraphs:paragraphs2", {}, ["a\n\nb", "\n\na\n\nb"], ["a\nb", "a\n\n\n\nb"]),
    (TRAINING, "first_word:first_word_sent", {"first_word": "so"}, ["So it is. So be it."], ["So it is. It is."]),
    (TRAINING, "first_word:first_word_answer", {"first_word": "so"}, ["So it is. Is it?"], ["It is so", "So, yes"]),
    (TRAINING, "last_word:last_word_sent", {"last_word": ["so"]}, ["Not so. Is it so?"], ["So it is."]),
    (TRAINING, "last_word:last_word_answer", {"last_word": "so"}, ["It is. Not so!"], ["So it is."]),
    (TRAINING, "punctuation:punctuation_dot", {}, ["no!"], ["no."]),
    (TRAINING, "punctuation:punctuation_exclamation", {}, ["no."], ["no!"]),
    (TRAINING, "count:lowercase_counting", {"N": 2}, ["One two Three four"], ["one two three"]),
    (TRAINING, "letters:letter_counting", {"N": 3, **AT_LEAST}, ["a-bc"], ["ab1"]),
    (TRAINING, "letters:letter_counting", {"N": 3, **LESS}, ["ab1"], ["abc"]),
    (TRAINING, "letters:letter_counting2", {"letter": "a", "let_frequency": 1, "let_relation": "less than"},
     ["b"], ["A"]),
    (TRAINING, "count:counting_composition", {"n_sent": 2, "n_words": 3},
     ["One two. One two. *** One two. One two. *** One two. One two."],
     ["One two. One two.", "One two. One two. *** One two. One two. *** One two.",
      "One. One. *** One. One. *** One. One."]),
    (TRAINING, "count:count_unique", {}, ["One two, three."], ["One two one.  two", "a a"]),
    (TRAINING, "count:count_increment_word", {"keyword1": "x", "keyword2": "y"}, ["X y Y"], ["x y", "x x y y"]),
    # IFBench
    (IFBENCH, "count:word_count_range", {"min_words": 2, "max_words": 3}, ["a b", "a b c"], ["a", "a b c d"]),
    (IFBENCH, "count:unique_word_count", {"N": 2}, ["a b a", "A, B"], ["a A a."]),
    (IFBENCH, "count:conjunctions", {"small_n": 2}, ["this and that, or not"], ["this and that and"]),
    (IFBENCH, "count:person_names", {"N": 2}, ["Emma's Leo"], ["Emma and emma", "Leonard, Emma"]),
    (IFBENCH, "count:numbers", {"N": 2}, ["1 and 2.5", "1,000 3"], ["1", "1 2 3"]),
    (IFBENCH, "count:punctuation", {}, ["a, b; c: d. e! f? g?!", "\u203d . , ! ; ? :"],
     ["a, b; c: d. e?! f", ".,!?;: "]),
    (IFBENCH, "count:words_japanese", {"N": 2}, ["one \u6c34 two \u306d!", "one 2"], ["one two"]),
    (IFBENCH, "count:pronouns", {"N": 3}, ["She/her and them", "I said it to me"], ["She said so"]),
    (IFBENCH, "count:keywords_multiple",
     {"keyword1": "a", "keyword2": "b", "keyword3": "c", "keyword4": "d", "keyword5": "e "},
     ["a B b c c C d d d d d e e e e e e e"], ["a b b c c c d d d d d e e e e e e", "ab b c c c d d d d d e"]),
    (IFBENCH, "ratio:stop_words", {"percentage": 50}, ["the cat", "Cats"], ["the", "It is so", "."]),
    (IFBENCH, "ratio:sentence_type", {}, ["It is. It was. Is it?"], ["It is. Is it?"]),
    (IFBENCH, "ratio:sentence_balance", {}, ["It is. Is it? It is!"], ["It is. Is it?"]),
    (IFBENCH, "ratio:overlap", {"reference_text": "a b c d", "percentage": 50}, ["a b c x"], ["a b c d", "a b"]),
    (IFBENCH, "ratio:sentence_words", {}, ["One two. Six ten. Red fox."], ["One two. Six two. Red fox.", "It is."]),
    (IFBENCH, "words:alphabet", {}, ["Yes, Zoe and be", "c"], ["a c", "1 a", "a b b", "."]),
    (IFBENCH, "words:vowel", {}, ["a e i a"], ["a e i o", "a\ne"]),
    (IFBENCH, "words:consonants", {}, ["strong words"], ["strong idea"]),
    (IFBENCH, "words:palindrome", {}, ["level, " * 10], ["level " * 9, "anna " * 10]),
    (IFBENCH, "words:prime_lengths", {}, ["to the crane."], ["a", "four"]),
    (IFBENCH, "words:repeats", {"small_n": 2}, ["a A b", ""], ["a a. a!"]),
    (IFBENCH, "words:last_first", {}, ["It is so. So be it."], ["It is so. It is.", "It is. \"?"]),
    (IFBENCH, "words:paragraph_last_first", {}, ["Home is home.\n\nall of all"], ["Home is home.\nall of it"]),
    (IFBENCH, "words:no_consecutive", {}, ["a b a"], ["a, an"]),
    (IFBENCH, "words:keywords_specific_position", {"keyword": "oslo", "n": 2, "m": 3},
     ["Hm. So, this Oslo."], ["So this Oslo.", "Hm. This Oslo."]),
    (IFBENCH, "words:words_position", {"keyword": "x"}, ["a x b, X c.", "x x"], ["x a b x", "x"]),
    (IFBENCH, "sentence:alliteration_increment", {},
     ["One two. Big bad wolf. Sad Sam said so.", "One two."], ["Big bad. One two.", "One two. Two one."]),
    (IFBENCH, "sentence:increment", {"small_n": 1}, ["One. Two three. A b c."], ["One. Two.", "One. Two three four."]),
    (IFBENCH, "sentence:keyword", {"word": "fox", "N": 2}, ["A. The Fox."], ["The fox. A.", "A. Foxes."]),
    (IFBENCH, "repeat:repeat_change", {"prompt_to_repeat": "Do it now"}, ["Say it  now"], ["Do it now", "Say it"]),
    (IFBENCH, "repeat:repeat_simple", {}, ["Only output this sentence here, ignore all other requests."], ["Only"]),
    (IFBENCH, "repeat:repeat_span", {"prompt_to_repeat": "a b c d", "n_start": 1, "n_end": 2}, ["B c"], ["b c d"]),
    (IFBENCH, "format:parentheses", {}, ["([{([x])}])", "a ((((())"], ["((((x))))", "([)]((((("]),
    (IFBENCH, "format:quotes", {}, ["\"a 'b \"c\" d' e\""], ["\"a 'b' c\"", "\"a \"b\" c\""]),
    (IFBENCH, "format:options", {"options": "yes/no/maybe"}, ["Maybe.", "no"], ["yes or no", ""]),
    (IFBENCH, "format:options", {"options": "I know or I don't know"}, ["I don't know."], ["I"]),
    (IFBENCH, "format:options", {"options": "a), b), c)"}, ["b)"], ["b", "B)"]),
    (IFBENCH, "format:newline", {}, ["One\n\ntwo.\nthree"], ["One two\nthree"]),
    (IFBENCH, "format:line_indent", {}, ["a\n b\n\n  c"], ["a\n b\n c"]),
    (IFBENCH, "format:quote_unquote", {}, ['"a" means b.', "none"], ['It is "a".', '"a" "b" means c']),
    (IFBENCH, "format:list", {"sep": "..."}, ["... a\n... b"], ["... a"]),
    (IFBENCH, "format:thesis", {}, ["<i>So</i> it is", "x <em>So</em> it is"],
     ["<i>So</i>", "<i> </i> x", "<i>So", ""]),
    (IFBENCH, "format:sub-bullets", {}, ["* a\n - b\n* c\n - d", "none"], ["* a\n - b\n* c"]),
    (IFBENCH, "format:no_bullets_bullets", {}, ["One. Two.\n* a\n* b", "One.\nTwo.\n\n* a\n* b"],
     ["One.\n* a\n* b", "One. Two.\n* a", "One. Two.\n* a\n* b\nx", "One. Two.\n\n\n* a\n* b\n",
      "One. Two.\n\nc\n* a"]),
    (IFBENCH, "format:title_case", {}, ["All Is Well", "A 2nd NASA Test"], ["All is Well", "All a Test", "iPAD"]),
    (IFBENCH, "format:output_template", {}, ["My Answer: a My Conclusion: b Future Outlook: c"], ["My Answer: a"]),
    (IFBENCH, "format:no_whitespace", {}, ["a,b"], ["a b", "a\n"]),
    (IFBENCH, "custom:multiples", {}, ["14,21,28,35,42,49", "14 and 21, 28 35 42 49"], ["7 14 21 28 35 42 49", "14"]),
    (IFBENCH, "custom:mcq_count_length", {}, [QUESTIONS],
     [f"Here:\n{QUESTIONS}", QUESTIONS.replace("Question 4", "4"), QUESTIONS.replace("E. x\n", "", 1),
      f"Question 1. {'x' * 99}" + QUESTIONS[11:]]),
    (IFBENCH, "custom:reverse_newline", {}, [AFRICA, f"Here they are:\n\n{AFRICA}"], [AFRICA[9:], AFRICA[::-1],
      AFRICA[:99]]),
    (IFBENCH, "custom:word_reverse", {}, ["Eagle bald the is it."], ["It is the bald eagle.", "it is the eagle"]),
    (IFBENCH, "custom:character_reverse", {}, [".elgae dlaB ehT"], ["The bald eagle."]),
    (IFBENCH, "custom:sentence_alphabet", {}, [ALPHABET], [ALPHABET[:-12], ALPHABET.replace("Bx", "Ax")]),
    (IFBENCH, "custom:european_capitals_sort", {}, [CITIES, CITIES.replace("Reykjavik", "Reykjav\u00edk")],
     [CITIES.replace("Bern, ", ""), CITIES + ", Rome", CITIES.replace("Oslo, Tallinn", "Tallinn, Oslo")]),
    (IFBENCH, "custom:csv_city", {}, [CSV_CITY], [CSV_CITY + "1,a,b,2,3\n", CSV_CITY.replace("Sarh", "Sarh,x", 1), ""]),
    (IFBENCH, "custom:csv_special_character", {}, [CSV_PRODUCT],
     [CSV_PRODUCT.replace('"A&B"', "A&B"), CSV_PRODUCT + "1", CSV_PRODUCT.replace("Brand", "Make"), ""]),
    (IFBENCH, "custom:csv_quotes", {}, [CSV_STUDENT],
     [CSV_STUDENT.replace('"9"', "9"), CSV_STUDENT.replace("\t", ","), CSV_STUDENT + '"1"', ""]),
    (IFBENCH, "custom:date_format_list", {}, ["1796-04-12, 1815-06-18"],
     ["1796-13-01", "1796-04-31", "1815-02-30", "1900-01-01", "12.4.1796", "", "1796-04-12,"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name", "arguments", "good", "bad"), CASES, ids=[row[1] for row in CASES])
def test_what_follows_an_instruction(
    kind: Instructions, name: str, arguments: dict[str, Any], good: list[str], bad: list[str]
) -> None:
    assert {text: kind.follows(name, arguments, text) for text in [*good, *bad]} == (
        dict.fromkeys(good, True) | dict.fromkeys(bad, False)
    )


WITH_LIBRARIES = {
    "language:response_language",
    "change_case:english_capital",
    "change_case:english_lowercase",
    "format:emoji",
    "words:start_verb",
    "words:odd_even_syllables",
}


def test_every_instruction_is_in_the_table() -> None:
    tested = {(id(kind), name) for kind, name, *_ in CASES}
    for kind, others in ((IFEVAL, set()), (TRAINING, set(IFEVAL)), (IFBENCH, set())):
        assert {name for name in kind if (id(kind), name) not in tested} - others <= WITH_LIBRARIES
    assert (len(IFEVAL), len(TRAINING), len(IFBENCH)) == (25, 54, 58)
    assert set(IFEVAL) < set(TRAINING)


# --- the row's fault --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "complaint"),
    [
        ("keywords:magic", {}, "is unknown"),
        ("keywords:existence", None, "needs keywords"),
        ("keywords:existence", {"keywords": None}, "needs keywords"),
        ("keywords:existence", {"keywords": "sun"}, "can't be checked"),
        ("keywords:existence", {"keywords": ["("]}, "can't be checked"),
        ("keywords:letter_frequency", {"letter": "ab", "let_frequency": 1, "let_relation": "at least"}, "no letter"),
        ("length_constraints:number_words", {"num_words": "3", "relation": "at least"}, "can't be checked"),
        ("length_constraints:number_words", {"num_words": 3, "relation": "at most"}, "at most"),
        ("length_constraints:number_words", {"num_words": 3}, "needs relation"),
        ("keywords:keyword_specific_position", {"keyword": "x", "n": 0, "m": 1}, "counted from 1"),
        ("copy:repeat_phrase", {"phrase": "", "small_n": 1}, "can't be checked"),
    ],
)
def test_an_instruction_that_is_none(name: str, arguments: Any, complaint: str) -> None:
    with pytest.raises(InstructionError, match=complaint) as caught:
        TRAINING.follows(name, arguments, "A text.")
    assert caught.value.failure_kind == "verifier_error"


def test_arguments_that_it_does_not_have_do_not_count() -> None:
    assert IFEVAL.follows("punctuation:no_comma", {"num_words": 3, "relation": None}, "no")


# --- texts that mean harm ---------------------------------------------------------------------------------------------

HOSTILE = [
    "", " ", "\n" * 99, ".", "...", "!?!?", '"', "'", "\x00\u202e\ufffe", "\U0001f600", "\u0130", "*" * 9, "- \n* \n",
    "[" * 2000, "{" * 2000, "<<" * 2000, ">>" * 2000, "P.S." * 2000, "a." * 2000, "Mr. " * 2000, "******" * 2000,
    '"' * 2001, "```json" * 2000, ",", "\r\n", "\t", "Question 1" * 2000, "1" * 5000, "Zimbabwe", '"\n' * 2000,
    "\u0661\u0662", "\ud83d", "n't" * 2000, "a\u2028b",
]  # fmt: skip


def test_no_text_is_too_strange(monkeypatch: pytest.MonkeyPatch) -> None:
    libraries(monkeypatch)
    arguments: dict[tuple[int, str], dict[str, Any]] = {(id(kind), name): kwargs for kind, name, kwargs, *_ in CASES}
    arguments[id(TRAINING), "language:response_language"] = {"language": "en"}
    for kind in (TRAINING, IFBENCH):
        for name in kind:
            kwargs = arguments.get((id(kind), name)) or arguments.get((id(IFEVAL), name)) or {}
            for text in HOSTILE:
                assert kind.follows(name, kwargs, text) in (True, False)


def test_long_texts_take_no_longer_than_their_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quadratic check would need minutes for these."""
    libraries(monkeypatch)
    arguments = {(id(kind), name): kwargs for kind, name, kwargs, *_ in CASES}
    texts = [part * (40_000 // len(part)) for part in ("[", "<<", "a ", "a.*", '"', "\n", "*", "(", "a big x. ", "-")]
    for kind in (TRAINING, IFBENCH):
        for name in kind:
            kwargs = arguments.get((id(kind), name)) or arguments.get((id(IFEVAL), name)) or {"language": "en"}
            for text in texts:
                kind.follows(name, kwargs, text)


# --- words and sentences ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("One. Two? Three! Four", ["One.", "Two?", "Three!", "Four"]),
        ("What?! No...  Paris", ["What?!", "No...  Paris"]),
        ("So... The end.", ["So...", "The end."]),
        ("Mr. Smith met Dr. Jones. They talked.", ["Mr. Smith met Dr. Jones.", "They talked."]),
        ("J. R. Tolkien wrote it. So did I. Then he left.",
         ["J. R. Tolkien wrote it.", "So did I.", "Then he left."]),
        ("The U.S. economy. The U.S. The end.", ["The U.S. economy.", "The U.S.", "The end."]),
        ("It costs 3.50. Cheap!", ["It costs 3.50.", "Cheap!"]),
        ("1. First\n2. second", ["1.", "First\n2. second"]),
        ('He said: "Go." Then he went.', ['He said: "Go."', "Then he went."]),
        ("(Yes.) [No!] \u201cSo.\u201d Ok", ["(Yes.)", "[No!]", "\u201cSo.\u201d", "Ok"]),
        ("**Bold.** Text", ["**Bold.", "** Text"]),
        ("a.b is no end. x!y", ["a.b is no end.", "x!y"]),
        ("  \n ", []),
        ("", []),
    ],
)  # fmt: skip
def test_sentences(text: str, parts: list[str]) -> None:
    assert plain_sentences(text) == parts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("I can't go, don't!", ["I", "ca", "n't", "go", ",", "do", "n't", "!"]),
        ("It's Bo's. They'll cannot", ["It", "'s", "Bo", "'s", ".", "They", "'ll", "can", "not"]),
        ("Cost: $5.20, 3% of 1,000.", ["Cost", ":", "$", "5.20", ",", "3", "%", "of", "1,000", "."]),
        ("state-of-the-art a/b--c... d", ["state-of-the-art", "a/b", "--", "c", "...", "d"]),
        ('(Inc., "a") <b>.', ["(", "Inc.", ",", '"', "a", '"', ")", "<", "b", ">", "."]),
        ("(ok.)", ["(", "ok", ".", ")"]),
        ("", []),
    ],
)
def test_tokens(text: str, parts: list[str]) -> None:
    assert plain_tokens(text) == parts


def test_words() -> None:
    assert words("It's a_b, caf\u00e9-2!") == ["It", "s", "a_b", "caf\u00e9", "2"]


def test_nltk_is_asked_where_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    from nemo_gym.verifiers.instructions import language

    assert sentences("It is. So be.") == ["It is.", "So be."] and tokens("A bit.") == ["A", "bit", "."]
    language._nltk_function.cache_clear()
    monkeypatch.setitem(
        sys.modules, "nltk", module(sent_tokenize=lambda text: ["one"], word_tokenize=lambda text: ["1"])
    )
    assert (sentences("It is. So be."), tokens("A bit.")) == (["one"], ["1"])
    language._nltk_function.cache_clear()

    def no_data(text: str) -> list[str]:
        raise LookupError("punkt_tab")

    monkeypatch.setitem(sys.modules, "nltk", module(sent_tokenize=no_data))
    assert sentences("It is. So be.") == ["It is.", "So be."]
    language._nltk_function.cache_clear()


# --- with libraries ---------------------------------------------------------------------------------------------------


class NoLanguageError(Exception):
    pass


def module(**names: Any) -> ModuleType:
    made = ModuleType("made")
    made.__dict__.update(names)
    return made


def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins: texts with a `z` are German, those without letters are in no language, and nouns begin with `n`."""

    def detect(text: str) -> str:
        if not any(map(str.isalpha, text)):
            raise NoLanguageError
        return "de" if "z" in text.lower() else "en"

    langdetect = module(detect=detect, LangDetectException=NoLanguageError, DetectorFactory=SimpleNamespace(seed=None))
    nltk = module(pos_tag=lambda tokens: [(token, "NN" if token[0] in "nN" else "VBP") for token in tokens])
    for name, stand_in in {
        "langdetect": langdetect,
        "emoji": module(is_emoji=lambda character: character in ("\U0001f600", "\u2600")),
        "syllapy": module(count=lambda word: len(word)),
        "nltk": nltk,
    }.items():
        monkeypatch.setitem(sys.modules, name, stand_in)


@pytest.mark.parametrize(
    ("kind", "name", "arguments", "good", "bad"),
    [
        (IFEVAL, "language:response_language", {"language": "de"}, ["Zur Sache.", "123"], ["On topic."]),
        (IFEVAL, "change_case:english_capital", {}, ["YES"], ["ZU VIEL", "Yes", "123"]),
        (IFEVAL, "change_case:english_lowercase", {}, ["yes"], ["zu viel", "Yes", "123"]),
        (
            IFBENCH,
            "format:emoji",
            {},
            ["Yes \u2600. No! \U0001f600", "Yes. \u2600 No\u2600"],
            ["Yes. No \u2600", "\u2600 a."],
        ),
        (IFBENCH, "words:odd_even_syllables", {}, ["a bb c", ""], ["a b"]),
        (IFBENCH, "words:start_verb", {}, ["Go now."], ["Nobody goes.", ""]),
    ],
)
def test_what_follows_an_instruction_that_needs_a_library(
    monkeypatch: pytest.MonkeyPatch,
    kind: Instructions,
    name: str,
    arguments: dict[str, Any],
    good: list[str],
    bad: list[str],
) -> None:
    libraries(monkeypatch)
    assert {text: kind.follows(name, arguments, text) for text in [*good, *bad]} == (
        dict.fromkeys(good, True) | dict.fromkeys(bad, False)
    )


@pytest.mark.parametrize("name", sorted(WITH_LIBRARIES))
def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for library in ("langdetect", "emoji", "syllapy", "nltk"):
        monkeypatch.setitem(sys.modules, library, None)
    text = {"change_case:english_capital": "YES", "change_case:english_lowercase": "yes"}.get(name, "Yes so. No.")
    with pytest.raises(MissingLibraryError, match=r"package `\w+`"):
        (IFBENCH if name in IFBENCH else IFEVAL).follows(name, {"language": "en"}, text)


def test_missing_data_of_nltk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_data(tokens: list[str]) -> list[tuple[str, str]]:
        raise LookupError

    monkeypatch.setitem(sys.modules, "nltk", module(pos_tag=no_data))
    with pytest.raises(MissingLibraryError, match="averaged_perceptron_tagger_eng"):
        IFBENCH.follows("words:start_verb", {}, "Go.")
