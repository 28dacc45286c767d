from collections.abc import Generator

from nemo_gym.testing.replies import Replies, Reply, Script, call, items_of


def said(script: Script, *seen: str) -> list[object]:
    """The text or the call's name of the first item of each reply."""
    replies = [script.next(text) for text in seen]
    return [items[0].get("name") or items[0]["content"][0]["text"] if items else None for items in replies]


def test_a_list_has_a_reply_for_each_call_and_then_the_closing_one() -> None:
    replies: Replies = [call("look"), "seen"]
    assert said(Script(replies, after="Done."), "", "x", "y", "z") == ["look", "seen", "Done.", "Done."]


def test_without_a_closing_reply_the_last_one_is_repeated() -> None:
    assert said(Script("no"), "", "", "") == ["no", "no", "no"]


def test_nothing_is_a_reply_without_items() -> None:
    assert Script(None).next("") == [] == Script([()]).next("")


def test_a_tuple_is_one_reply_of_several_items() -> None:
    items = items_of((call("a"), "text"))
    assert [item["type"] for item in items] == ["function_call", "message"]


def test_a_generator_hears_what_was_said_since_its_last_reply() -> None:
    def talk() -> Generator[Reply, str, None]:
        heard = yield "first"
        yield f"after {heard}"

    assert said(Script(talk(), after="end"), "prompt", "door", "x") == ["first", "after door", "end"]


def test_calls_have_ids_of_their_own_and_arguments_as_json() -> None:
    first, second = call("look", at="Tür"), call("look", name="x")
    assert first["call_id"] != second["call_id"]
    assert (first["arguments"], second["arguments"]) == ('{"at": "Tür"}', '{"name": "x"}')
