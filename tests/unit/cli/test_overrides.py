"""Values of flags survive the override grammar."""

from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given
from hypothesis import strategies as st

from nemo_gym.cli.overrides import config_paths_of, config_paths_override, is_override, list_value, text_value

GRAMMAR = OverridesParser.create()
AWKWARD = st.sampled_from(list("abc019.,=()[]{}'\"\\ /:$%*@?|+-~#_eE\n\t"))
TEXT = st.text(alphabet=st.one_of(AWKWARD, st.characters(exclude_categories=["Cs"])), max_size=12)


def is_meant_as_typed(text: str) -> bool:
    return text == "null" or (len(text) > 1 and text[0] == text[-1] and text[0] in "'\"")


@given(TEXT.filter(lambda text: not is_meant_as_typed(text)))
@example("a,\\")
@example('a\\\\"')
def test_any_text_is_read_back_as_the_same_text(text: str) -> None:
    value = GRAMMAR.parse_override(f"+key={text_value(text)}").value()
    assert type(value) is str
    assert value == text


@given(st.lists(TEXT))
def test_any_list_is_read_back_as_the_same_list(items: list[str]) -> None:
    assert GRAMMAR.parse_override(f"+key={list_value(items)}").value() == items


@given(st.lists(TEXT.filter(lambda text: text and not is_meant_as_typed(text)), min_size=1))
def test_config_paths_survive_merging(paths: list[str]) -> None:
    token = config_paths_override(paths)
    assert config_paths_of(token) == paths
    assert GRAMMAR.parse_override(token).value() == paths


def test_plain_text_stays_plain() -> None:
    for text in ("gpt-4.1", "http://vllm:8000/v1", "a/b_c.jsonl", "x|y", "50%"):
        assert text_value(text) == text


def test_text_that_reads_as_another_type_is_quoted() -> None:
    for text in ("1", "1.5", "1e5", "True", "nan", "-inf", "0012", ""):
        assert text_value(text) == f'"{text}"'


def test_null_and_quoted_text_are_left_as_typed() -> None:
    for text in ("null", '"a,b"', "'it\\'s'"):
        assert text_value(text) == text


def test_one_bare_path_is_a_list_of_one() -> None:
    assert config_paths_of("+config_paths=a.yaml") == ["a.yaml"]
    assert config_paths_of("+config_paths=[a.yaml, 'b,c.yaml']") == ["a.yaml", "b,c.yaml"]
    for token in ("+config_paths=a,b", "+config_paths=${x}", "++config_paths=[a]", "+config_paths="):
        assert config_paths_of(token) is None


def test_what_counts_as_an_override() -> None:
    assert all(map(is_override, ("+a=1", "++a=1", "a=1", "~a", "+a")))
    assert not any(map(is_override, ("--a=1", "-a", "a", "a.yaml")))
