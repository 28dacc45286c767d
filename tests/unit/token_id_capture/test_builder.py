"""From calls to chains, and whether the result may be trained on."""

import pytest

from nemo_gym.token_id_capture.attribution import is_masked
from nemo_gym.token_id_capture.builder import BuildOutput, run_builder
from nemo_gym.token_id_capture.errors import TokenCaptureError
from nemo_gym.token_id_capture.projection import assert_prefix_contiguity, carries_tokens, project_main_chain_response
from nemo_gym.token_id_capture.records import TokenEntry
from nemo_gym.token_id_capture.terminal import TerminalAttribution
from tests.unit.token_id_capture.calls import UNRESOLVED, call, function_call, said

NOBODY = TerminalAttribution("none", None, "no_witness")


def _ids(build: BuildOutput) -> list[list[str]]:
    return [[entry.model_call_id for entry in chain] for chain in build.chains]


def _three() -> list[TokenEntry]:
    a = call("a", [1], [2])
    b = call("b", [1, 2, 3], [4], parent=a)
    c = call("c", [1, 2, 3, 4, 5], [6, 7], parent=b)
    return [c, a, b]


def test_calls_are_put_in_order() -> None:
    build = run_builder(_three())
    assert _ids(build) == [["a", "b", "c"]]
    assert (build.quarantined, build.notes.roots, build.notes.generated_tokens) == ([], ["a"], 4)
    assert not is_masked(build, NOBODY, incomplete=False)
    assert is_masked(build, NOBODY, incomplete=True)


def test_the_projection_is_one_contiguous_sequence() -> None:
    response = project_main_chain_response("r", run_builder(_three()).main_chain, model="m")
    assert (response["id"], response["object"], response["model"]) == ("proj-r", "response", "m")
    carried = [(item["prompt_token_ids"], item["generation_token_ids"]) for item in response["output"]]
    assert carried == [([1], [2]), ([1, 2, 3], [4]), ([1, 2, 3, 4, 5], [6, 7])]
    assert response["usage"] == {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
    assert carries_tokens(response["output"])
    assert not carries_tokens([said("x")])


def test_the_projection_puts_tokens_on_the_item_that_had_them() -> None:
    entry = call("a", [1], [2], output=[said("x"), function_call("c", "f", "{}")])
    items = project_main_chain_response("r", [entry.model_copy(update={"routed_experts": [[[1]]]})])["output"]
    assert "generation_token_ids" not in items[0]
    assert (items[1]["generation_token_ids"], items[1]["routed_experts"]) == ([2], [[[1]]])
    assert "generation_token_ids" not in entry.output_items[1]


def test_a_sequence_with_a_gap_is_no_sequence() -> None:
    items = [
        {"prompt_token_ids": [1], "generation_token_ids": [2]},
        {"prompt_token_ids": [1, 9], "generation_token_ids": [3]},
    ]
    with pytest.raises(AssertionError, match="non-contiguous"):
        assert_prefix_contiguity(items)
    assert_prefix_contiguity([items[0], said("x"), {"prompt_token_ids": [9], "generation_token_ids": []}])


def test_deltas_are_expanded_through_their_parents() -> None:
    a = call("a", [1], [2])
    b = call("b", [1, 2, 3], [4], parent=a, delta=True)
    c = call("c", [1, 2, 3, 4, 5], [6], parent=call("b", [1, 2, 3], [4], parent=a), delta=True)
    assert [e.prompt_token_ids for e in run_builder([c, b, a]).main_chain] == [[1], [1, 2, 3], [1, 2, 3, 4, 5]]


def test_deltas_that_do_not_come_to_their_digest_or_lack_a_parent_are_left_out() -> None:
    a = call("a", [1], [2])
    b = call("b", [1, 2, 3], [4], parent=a, delta=True).model_copy(update={"digest": "0" * 64})
    c = call("c", [1, 2, 3, 4, 5], [6], parent=call("gone", [1, 2, 3], [4], parent=a), delta=True)
    build = run_builder([a, b, c])
    assert _ids(build) == [["a"]]
    assert build.quarantined == ["b", "c"]


def test_duplicates_count_once_and_conflicts_are_noted() -> None:
    a = call("a", [1], [2])
    build = run_builder([a, a.model_copy(), call("a", [1], [3])])
    assert (build.notes.calls, build.notes.conflicting_duplicates) == (1, ["a"])
    assert build.main_chain == [a]


def test_calls_that_generated_nothing_are_dropped() -> None:
    build = run_builder([call("a", [1], [2]), call("b", [1, 2], [])])
    assert (_ids(build), build.notes.empty_generations, build.quarantined) == ([["a"]], ["b"], [])
    empty = run_builder([call("b", [1, 2], [])])
    assert (empty.chains, is_masked(empty, NOBODY, incomplete=False)) == ([], True)


def test_a_parent_that_was_dropped_is_found_by_its_tokens() -> None:
    a = call("a", [1], [2])
    gone = call("gone", [1, 2, 3], [], parent=a)
    b = call("b", [1, 2, 3, 4], [5], parent=gone)
    build = run_builder([a, gone, b])
    assert _ids(build) == [["a", "b"]]


def test_calls_without_lineage_are_linked_by_their_tokens() -> None:
    bare = {"parent_resolution": None, "digest": None}
    entries = [entry.model_copy(update={**bare, "parent_call_id": None}) for entry in _three()]
    assert _ids(run_builder(entries)) == [["a", "b", "c"]]


def test_a_prompt_that_drops_its_parents_tokens_begins_a_fragment() -> None:
    a = call("a", [1], [2])
    b = call("b", [1, 9, 3], [4], parent=a)
    build = run_builder([a, b])
    assert (_ids(build), build.notes.parent_link_failures) == ([["a"], ["b"]], ["b"])
    assert is_masked(build, NOBODY, incomplete=False)


def test_an_unresolved_call_is_masked_even_if_its_tokens_fit() -> None:
    a = call("a", [1], [2])
    b = call("b", [1, 2, 3], [4], status=UNRESOLVED)
    build = run_builder([a, b])
    assert (_ids(build), build.notes.unresolved_parents) == ([["a"], ["b"]], ["b"])
    assert is_masked(build, NOBODY, incomplete=False)


def test_of_retries_the_one_that_was_gone_on_with_stays() -> None:
    a, again = call("a", [1], [2]), call("again", [1], [3])
    b = call("b", [1, 3, 4], [5], parent=again)
    build = run_builder([a, again, b])
    assert (_ids(build), build.notes.discarded_retries, build.quarantined) == ([["again", "b"]], ["a"], ["a"])
    assert not is_masked(build, NOBODY, incomplete=False)


def test_of_retries_the_one_the_rollout_ended_with_stays() -> None:
    a, again = call("a", [1], [2]), call("again", [1], [3])
    build = run_builder([a, again], terminal_call_id="again")
    assert (_ids(build), build.notes.attributed) == ([["again"]], True)
    assert not is_masked(build, TerminalAttribution("content", "again", "attributed"), incomplete=False)


def test_retries_that_nothing_tells_apart_are_masked() -> None:
    build = run_builder([call("b", [1], [3], created_at=2), call("a", [1], [2], created_at=1)])
    assert (_ids(build), build.notes.unresolved_retries) == ([["a"]], ["a", "b"])
    assert is_masked(build, NOBODY, incomplete=False)


def _two_conversations() -> list[TokenEntry]:
    a = call("a", [1], [2], created_at=1)
    return [a, call("b", [1, 2, 3], [4], parent=a), call("z", [7], [8], created_at=0.5)]


def test_of_two_conversations_the_attributed_one_is_main_and_not_masked() -> None:
    build = run_builder(_two_conversations(), terminal_call_id="b")
    assert _ids(build) == [["a", "b"], ["z"]]
    assert not is_masked(build, TerminalAttribution("content", "b", "attributed"), incomplete=False)


def test_of_two_conversations_the_older_is_main_when_nothing_tells_and_masked() -> None:
    build = run_builder(_two_conversations())
    assert _ids(build) == [["z"], ["a", "b"]]
    assert is_masked(build, NOBODY, incomplete=False)


def test_a_rollout_that_ended_early_keeps_what_led_there() -> None:
    build = run_builder(_three(), terminal_call_id="b")
    assert _ids(build)[0] == ["a", "b"]
    assert build.notes.attributed


def test_an_attribution_to_a_broken_chain_is_masked() -> None:
    a = call("a", [1], [2])
    b = call("b", [1, 9, 3], [4], parent=a)
    build = run_builder([a, b], terminal_call_id="b")
    assert build.notes.terminal_is_broken
    assert is_masked(build, TerminalAttribution("content", "b", "attributed"), incomplete=False)
    missing = run_builder([a], terminal_call_id="gone")
    assert is_masked(missing, TerminalAttribution("content", "gone", "attributed"), incomplete=False)


def test_a_declaration_that_nothing_matches_is_masked() -> None:
    declared = TerminalAttribution("none", None, "explicit_call_not_captured", True)
    assert is_masked(run_builder([call("a", [1], [2])]), declared, incomplete=False)


def test_there_is_one_builder() -> None:
    with pytest.raises(TokenCaptureError, match="fancy"):
        run_builder([], "fancy")
