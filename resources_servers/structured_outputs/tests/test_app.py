from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from nemo_gym.testing.responses import call, message, reasoning, response, verify_request
from nemo_gym.testing.verdicts import (
    Case,
    check_case,
    check_example_rollouts,
    check_example_rows,
    new_server,
    verified,
)
from resources_servers.structured_outputs import app
from resources_servers.structured_outputs.app import SchemaType, StructuredOutputsResourcesServer
from resources_servers.structured_outputs.checking import check_arguments, check_text
from resources_servers.structured_outputs.coercion import coerce_csv, coerce_xml
from resources_servers.structured_outputs.documents import DocumentError, parse_xml, parse_yaml, parsed
from resources_servers.structured_outputs.schemas import strictified, validate

FOLDER = Path(__file__).parents[1]
STRING, INTEGER, NUMBER, BOOLEAN = ({"type": name} for name in ("string", "integer", "number", "boolean"))


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def a_list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


PERSON = an_object(name=STRING, age=INTEGER)
ROOTED = an_object(person=PERSON)
PEOPLE = a_list(PERSON)


def asked(schema: Any, *output: Any, **fields: Any) -> dict[str, Any]:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return verify_request({"schema_str": text, **fields}, *output)


def called(*output: Any, schema: Any = PERSON, **fields: Any) -> dict[str, Any]:
    return asked(schema, *output, response_mode="tool_call", **fields)


def wrong(error_type: str | None) -> dict[str, Any]:
    return {"error_type": error_type}


RIGHT = '{"name": "Eva", "age": 7}'
XML = "<person><name>Eva</name><age>7</age></person>"
FENCED = f"```json\n{RIGHT}\n```"
EVA = {"name": "Eva", "age": 7}

CASES = [
    Case("json", asked(PERSON, RIGHT), 1.0, own={"error_type": None, "error_message": None}),
    Case("json over several messages", asked(PERSON, RIGHT[:9], message(RIGHT[9:12], RIGHT[12:])), 1.0),
    Case("space around it", asked(PERSON, f"\n {RIGHT}\n"), 1.0),
    Case("no response", asked(PERSON), 0.0, own=wrong("empty_response")),
    Case("a blank response", asked(PERSON, " \n"), 0.0, own=wrong("empty_response")),
    Case("reasoning is no response", asked(PERSON, reasoning(RIGHT)), 0.0, own=wrong("empty_response")),
    Case("words around it", asked(PERSON, f"Here: {RIGHT}"), 0.0, own=wrong("parse_error")),
    Case("a fence around it", asked(PERSON, FENCED), 0.0, own=wrong("parse_error")),
    Case("a fence, accepted", asked(PERSON, FENCED), 1.0, settings={"accept_fenced": True}),
    Case("two fences", asked(PERSON, f"{FENCED}\n{FENCED}"), 0.0, own=wrong("parse_error"),
         settings={"accept_fenced": True}),
    Case("words around a fence", asked(PERSON, f"Here:\n{FENCED}"), 0.0, own=wrong("parse_error"),
         settings={"accept_fenced": True}),
    Case("no fence, and accepted", asked(PERSON, RIGHT), 1.0, settings={"accept_fenced": True}),
    Case("a list", asked(PERSON, f"[{RIGHT}]"), 0.0, own=wrong("validation_error")),
    Case("another type", asked(PERSON, '{"name": "Eva", "age": "7"}'), 0.0, own=wrong("validation_error")),
    # strict
    Case("a property left out", asked(PERSON, '{"name": "Eva"}'), 0.0, own=wrong("validation_error")),
    Case("one that isn't required", asked({**PERSON, "required": ["name"]}, '{"name": "Eva"}'), 0.0,
         own=wrong("validation_error")),
    Case("one too many", asked(PERSON, '{"name": "Eva", "age": 7, "x": 1}'), 0.0, own=wrong("validation_error")),
    Case("one too many, allowed", asked({**PERSON, "additionalProperties": True}, '{"name": "", "age": 1, "x": 1}'),
         0.0, own=wrong("validation_error")),
    Case("one too many inside", asked(ROOTED, '{"person": {"name": "", "age": 1, "x": 1}}'), 0.0),
    Case("one too many in an item", asked(PEOPLE, '[{"name": "", "age": 1, "x": 1}]'), 0.0),
    Case("one too many below a list", asked({"anyOf": [PERSON]}, '{"x": 1}'), 1.0),
    # as OpenAPI 3.1
    Case("formats are not checked", asked({**STRING, "format": "date"}, '"tomorrow"'), 1.0),
    Case("nullable means nothing", asked({**STRING, "nullable": True}, "null"), 0.0),
    Case("a null that is allowed", asked({"type": ["string", "null"]}, "null"), 1.0),
    Case("a reference", asked({"$ref": "#/$defs/p", "$defs": {"p": PERSON}}, RIGHT), 1.0),
    # yaml, toml
    Case("yaml", asked(PERSON, "name: Eva\nage: 7\n", schema_type="yaml"), 1.0),
    Case("json is yaml", asked(PERSON, RIGHT, schema_type="yaml"), 1.0),
    Case("no yaml", asked(PERSON, "name: [Eva", schema_type="yaml"), 0.0, own=wrong("parse_error")),
    Case("two documents", asked(PERSON, "name: Eva\n---\nage: 7\n", schema_type="yaml"), 0.0,
         own=wrong("parse_error")),
    Case("objects of Python", asked(PERSON, "!!python/object/apply:os.getpid []", schema_type="yaml"), 0.0,
         own=wrong("parse_error")),
    Case("another type in yaml", asked(PERSON, "name: Eva\nage: seven\n", schema_type="yaml"), 0.0),
    Case("toml", asked(PERSON, 'name = "Eva"\nage = 7\n', schema_type="toml"), 1.0),
    Case("no toml", asked(PERSON, "name = Eva", schema_type="toml"), 0.0, own=wrong("parse_error")),
    # xml
    Case("xml", asked(ROOTED, XML, schema_type="xml"), 1.0),
    Case("xml without its root", asked(PERSON, XML, schema_type="xml"), 0.0, own=wrong("validation_error")),
    Case("xml as texts", asked(ROOTED, XML, schema_type="xml"), 0.0, settings={"xml_coerce_types": False}),
    Case("no number in xml", asked(ROOTED, XML.replace("7", "seven"), schema_type="xml"), 0.0,
         own=wrong("validation_error")),
    Case("no xml", asked(ROOTED, XML[:-1], schema_type="xml"), 0.0, own=wrong("parse_error")),
    # csv
    Case("csv", asked(PEOPLE, "name,age\nEva,7\nBo,8\n", schema_type="csv"), 1.0),
    Case("a header alone", asked(PEOPLE, "name,age\n", schema_type="csv"), 1.0),
    Case("a line that is no header of these", asked(PEOPLE, "I can't say, sorry.", schema_type="csv"), 0.0,
         own=wrong("validation_error")),
    Case("a line, and no columns wanted", asked(a_list({}), "name", schema_type="csv"), 1.0),
    Case("no number in csv", asked(PEOPLE, "name,age\nEva,seven\n", schema_type="csv"), 0.0),
    Case("a cell too many", asked(PEOPLE, "name,age\nEva,7,x\n", schema_type="csv"), 0.0,
         own=wrong("validation_error")),
    Case("a cell too few", asked(PEOPLE, "name,age\nEva\n", schema_type="csv"), 0.0, own=wrong("validation_error")),
    # a call
    Case("a call", called(call("save", EVA), tool_name="save"), 1.0),
    Case("any call", called(call("keep", EVA)), 1.0),
    Case("a call and words", called("Saved.", call("save", EVA)), 1.0),
    Case("one argument", called(call("save", {"who": EVA, "x": 1}), tool_payload_key="who"), 1.0),
    Case("not that argument", called(call("save", EVA), tool_payload_key="who"), 0.0,
         own=wrong("missing_tool_payload_key")),
    Case("no arguments at all", called(call("save", "[]"), tool_payload_key="who"), 0.0,
         own=wrong("missing_tool_payload_key")),
    Case("words instead of a call", called(RIGHT), 0.0, own=wrong("missing_tool_call")),
    Case("two calls", called(call("save", EVA), call("save", EVA)), 0.0, own=wrong("multiple_tool_calls")),
    Case("another tool", called(call("keep", EVA), tool_name="save"), 0.0, own=wrong("wrong_tool_name")),
    Case("no JSON", called(call("save", "{name: Eva}")), 0.0, own=wrong("tool_arguments_parse_error")),
    Case("arguments that don't fit", called(call("save", {"name": "Eva"})), 0.0, own=wrong("validation_error")),
    Case("an error", {**called(call("save", EVA)), "response": response(
        call("save", EVA), error={"code": "server_error", "message": "no"})}, 0.0, own=wrong("api_error")),
    # the row is at fault
    Case("no schema", asked("{", RIGHT), 0.0, own={"mask_sample": True, **wrong("schema_error")}),
    Case("no schema for a call", called(call("save", EVA), schema="{"), 0.0,
         own={"mask_sample": True, **wrong("schema_error")}),
    Case("no schema that could be", asked({"type": "text"}, RIGHT), 0.0,
         own={"mask_sample": True, "failure_kind": "verifier_error", **wrong("validation_error")}),
    Case("a schema elsewhere", asked({"$ref": "http://127.0.0.1:1/x"}, RIGHT), 0.0,
         own={"mask_sample": True, **wrong("validation_error")}),
    Case("nothing said to no schema", asked("{", ""), 0.0, own=wrong("empty_response")),
]  # fmt: skip


@pytest.fixture(scope="module")
def server() -> StructuredOutputsResourcesServer:
    return new_server(StructuredOutputsResourcesServer)


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_rewards(server: StructuredOutputsResourcesServer, case: Case) -> None:
    await check_case(new_server(StructuredOutputsResourcesServer, **case.settings) if case.settings else server, case)


async def test_what_was_wrong_is_said_in_few_words() -> None:
    answer = await verified(
        new_server(StructuredOutputsResourcesServer), asked(a_list(INTEGER), json.dumps(["x" * 999]))
    )
    assert answer.error_message.startswith("ValidationError: 'xxx") and len(answer.error_message) == 200


# --- strictness -------------------------------------------------------------------------------------------------------


def test_strict_schemas() -> None:
    inner = an_object(a=STRING)
    schema = {
        **an_object(x=inner, y={"items": inner}, z={"anyOf": [inner], "not": inner}),
        "required": [],
        "$defs": {"d": inner},
        "additionalProperties": inner,
    }
    strict = {**inner, "required": ["a"], "additionalProperties": False}
    assert strictified(schema) == {
        **an_object(x=strict, y={"items": strict}, z={"anyOf": [inner], "not": strict}),
        "required": ["x", "y", "z"],
        "$defs": {"d": strict},
        "additionalProperties": False,
    }
    assert schema["required"] == []


def test_a_property_may_be_called_properties() -> None:
    """0.7 makes no schema of this, and every answer wrong."""
    schema = strictified(an_object(properties=an_object(a=STRING), required=BOOLEAN))
    validate({"properties": {"a": "x"}, "required": True}, schema)
    assert strictified({"const": an_object(a=STRING)}) == {"const": an_object(a=STRING)}


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ({"kind": "cat", "lives": 9}, True),
        ({"kind": "cat", "lives": "x"}, False),
        ({"kind": "dog"}, True),
        ({"kind": "cow"}, False),
        ({"lives": 9}, False),
        (["cat"], False),
    ],
)
def test_a_discriminator_chooses(value: Any, fits: bool) -> None:
    schema = {
        "oneOf": [{"$ref": "#/components/schemas/cat"}, {"$ref": "#/$defs/dog"}],
        "discriminator": {"propertyName": "kind", "mapping": {"dog": "#/$defs/dog"}},
        "components": {"schemas": {"cat": {"properties": {"lives": INTEGER}}}},
        "$defs": {"dog": {"type": "object"}},
    }
    from jsonschema.exceptions import ValidationError  # type: ignore[import-untyped]

    if fits:
        validate(value, schema)
    else:
        with pytest.raises(ValidationError):
            validate(value, schema)


VALUES: list[Any] = [None, True, 1, 1.0, 1.5, "x", "", "2020-01-01", [], [1, 1], {}, {"a": 1}, {"a": "x", "b": None}]
SCHEMAS: list[Any] = [
    {}, True, STRING, NUMBER, INTEGER, BOOLEAN, {"type": ["string", "null"]}, {**STRING, "format": "date"},
    {**STRING, "nullable": True}, {"enum": [1, "x"]}, {"const": {"a": 1}}, a_list(INTEGER), {"uniqueItems": True},
    strictified(an_object(a=INTEGER)), {"anyOf": [STRING, INTEGER]}, {"allOf": [{"minimum": 1}, {"maximum": 1}]},
    {"type": "object", "required": ["a"]}, {"minLength": 2}, {"pattern": "^x"}, {"description": "d", "example": 3},
]  # fmt: skip


def test_values_fit_as_with_the_library_of_0_7() -> None:
    library = pytest.importorskip("openapi_schema_validator", reason="openapi-schema-validator is not installed")

    def error_of(check: Any, value: Any, schema: Any) -> str | None:
        try:
            check(value, schema)
        except Exception as error:
            return type(error).__name__
        return None

    for schema in SCHEMAS:
        for value in VALUES:
            assert error_of(validate, value, schema) == error_of(library.validate, value, schema), (value, schema)


# --- documents --------------------------------------------------------------------------------------------------------

DOCUMENTS: list[tuple[str, Any]] = [
    ("<a/>", {"a": None}),
    ("<a> x </a>", {"a": "x"}),
    ("<a>\n<b>1</b>\n</a>", {"a": {"b": "1"}}),
    ("<a><b>1</b><c/><b>2</b><b/></a>", {"a": {"b": ["1", "2", None], "c": None}}),
    ('<a k="v"/>', {"a": {"@k": "v"}}),
    ('<a k="v">x</a>', {"a": {"@k": "v", "#text": "x"}}),
    ("<a>x<b>1</b>y</a>", {"a": {"b": "1", "#text": "xy"}}),
    ("<a><!-- c --><![CDATA[<x>]]>&amp;&#65;</a>", {"a": "<x>&A"}),
    ("<?xml version='1.0' encoding='UTF-8'?><n:a xmlns:n='u'>x</n:a>", {"n:a": {"@xmlns:n": "u", "#text": "x"}}),
    ("<a>\u00e9</a>", {"a": "\u00e9"}),
]


@pytest.mark.parametrize(("text", "value"), DOCUMENTS)
def test_what_xml_holds(text: str, value: Any) -> None:
    assert parse_xml(text) == value


def test_xml_holds_what_the_library_of_0_7_says() -> None:
    library = pytest.importorskip("xmltodict", reason="xmltodict is not installed")
    for text, _ in DOCUMENTS:
        assert parse_xml(text) == library.parse(text)


OPTIONAL = {"type": ["integer", "null"]}


@pytest.mark.parametrize(
    ("value", "schema", "coerced"),
    [
        ("7", INTEGER, 7),
        (" 7 ", INTEGER, 7),
        ("7.5", INTEGER, "7.5"),
        ("7.5", NUMBER, 7.5),
        ("TRUE", BOOLEAN, True),
        ("0", BOOLEAN, False),
        ("yes", BOOLEAN, "yes"),
        ("7", STRING, "7"),
        (None, STRING, ""),
        (None, INTEGER, None),
        ("7", {}, "7"),
        ("7", True, "7"),
        ({"a": "1", "b": "2"}, an_object(a=INTEGER), {"a": 1, "b": "2"}),
        ("x", an_object(a=INTEGER), "x"),
        ({"i": ["1", "2"]}, a_list(INTEGER), [1, 2]),
        ({"i": "1"}, a_list(INTEGER), [1]),
        ({"i": {"a": "1"}}, a_list(an_object(a=INTEGER)), [{"a": 1}]),
        ({"a": "1", "b": "2"}, a_list(an_object(a=INTEGER, b=STRING)), [{"a": 1, "b": "2"}]),
        ("1", a_list(INTEGER), [1]),
        (["1", None], a_list(STRING), ["1", ""]),
        (None, a_list(STRING), []),
        ("7", OPTIONAL, 7),
        (None, OPTIONAL, None),
        ({"i": "1"}, {**a_list(INTEGER), "type": ["array", "null"]}, [1]),
        (None, {**a_list(INTEGER), "type": ["array", "null"]}, None),
        ({"a": "1"}, {**an_object(a=INTEGER), "type": ["null", "object"]}, {"a": 1}),
    ],
)
def test_values_of_xml_become_what_the_schema_asks_for(value: Any, schema: Any, coerced: Any) -> None:
    assert coerce_xml(value, schema) == coerced
    assert type(coerce_xml(value, schema)) is type(coerced)


@pytest.mark.parametrize(
    ("cell", "types", "value"),
    [
        ("7", "integer", 7),
        ("", "integer", ""),
        ("", "string", ""),
        ("7", ["integer", "null"], 7),
        ("", ["integer", "null"], None),
        ("", ["integer", "string"], ""),
        ("x", ["integer", "null"], "x"),
        ("7", ["string", "integer"], "7"),
        ("7.5", ["integer", "number"], 7.5),
        ("true", "boolean", True),
        (None, "integer", None),
    ],
)
def test_cells_become_what_the_schema_asks_for(cell: Any, types: Any, value: Any) -> None:
    rows = coerce_csv([{"a": cell, "b": "7", None: ["x"]}], a_list(an_object(a={"type": types})))
    assert rows == [{"a": value, "b": "7", None: ["x"]}]
    assert coerce_csv([{"a": "7"}], {}) == coerce_csv([{"a": "7"}], True) == [{"a": "7"}]


# --- answers that mean harm -------------------------------------------------------------------------------------------

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(9)
)
ENTITIES = '<!DOCTYPE a [<!ENTITY x "xxxxxxxxxx"><!ENTITY y "&x;&x;&x;">]><a>&y;</a>'


def test_aliases_that_multiply_are_refused() -> None:
    with pytest.raises(DocumentError, match="stand for more"):
        parse_yaml(BOMB)
    with pytest.raises(DocumentError, match="refers to what it is in"):
        parse_yaml("a: &a [*a]")
    assert parse_yaml("a: &a [1]\nb: *a\nc: *a") == {"a": [1], "b": [1], "c": [1]}


def test_entities_are_refused() -> None:
    with pytest.raises(DocumentError, match="entities"):
        parse_xml(ENTITIES)


HOSTILE = [
    "[" * 100_000,
    "{" * 100_000,
    '{"a":' * 100_000,
    "<a>" * 100_000,
    "<a>" * 20_000 + "</a>" * 20_000,
    "- " * 50_000,
    "a = " + "[" * 100_000,
    '"' + "x" * 1_000_000,
    "x," * 200_000,
    "9" * 100_000,
    "1e999999999",
    "NaN",
    "\x00\x07\u202e\ufffe\U0001f600",
    BOMB,
    "a: &a [*a]",
    ENTITIES,
    "? [a]\n: b",
    "2020-01-01",
]


@pytest.mark.parametrize("schema_type", list(SchemaType))
async def test_hostile_texts_score_nothing(schema_type: SchemaType) -> None:
    server = new_server(StructuredOutputsResourcesServer)
    for text in HOSTILE:
        answer = await verified(server, asked(ROOTED, text, schema_type=schema_type))
        assert (answer.reward, answer.mask_sample) == (0.0, False), (schema_type, text[:20], answer.failure_reason)
        assert answer.error_type in ("parse_error", "validation_error")


async def test_hostile_arguments_score_nothing() -> None:
    server = new_server(StructuredOutputsResourcesServer)
    for text in HOSTILE:
        for fields in ({}, {"tool_payload_key": "person"}):
            answer = await verified(server, called(call("save", text), schema=ROOTED, **fields))
            assert (answer.reward, answer.mask_sample) == (0.0, False), text[:20]


SLOW_FOR_SOME = {"type": "string", "pattern": "^(a+)+$"}
SLOW_FOR_ALL = {
    "$defs": {f"d{depth}": {"allOf": [{"$ref": f"#/$defs/d{depth + 1}"}] * 2} for depth in range(40)} | {"d40": {}},
    "$ref": "#/$defs/d0",
}


@pytest.mark.parametrize(
    ("schema", "mode", "seconds", "masks"),
    [
        (SLOW_FOR_SOME, "text", 2.0, False),
        (SLOW_FOR_ALL, "text", 0.3, True),
        (SLOW_FOR_ALL, "tool_call", 0.3, True),
    ],
    ids=["some", "all", "all calls"],
)
async def test_a_schema_without_end(
    schema: dict[str, Any], mode: str, seconds: float, masks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not hold up the server. If only this answer takes so long, that is the answer's doing."""
    monkeypatch.setattr(app, "SECONDS", seconds)
    text = json.dumps("a" * 64 + "b")
    row = asked(schema, text) if mode == "text" else called(call("save", text), schema=schema)
    answer = await verified(new_server(StructuredOutputsResourcesServer), row)
    assert (answer.reward, answer.mask_sample, answer.failure_kind) == (0.0, masks, "verifier_error" if masks else None)
    assert answer.error_type == "validation_error"
    assert f"took more than {seconds:g} s" in answer.error_message and answer.failure_reason


def test_a_schema_may_be_anything() -> None:
    for schema in ("[" * 100_000, "1", '"x"', "null", "[]", '{"properties": 1}', '{"properties": {"a": 1}}'):
        for problem in (
            check_text("{}", schema, SchemaType.JSON, coerce_xml_types=True),
            check_text("<a/>", schema, SchemaType.XML, coerce_xml_types=True),
            check_text("a\nb", schema, SchemaType.CSV, coerce_xml_types=True),
            check_arguments("{}", schema, None),
        ):
            assert problem is not None and problem.is_rows, schema


# --- over HTTP --------------------------------------------------------------------------------------------------------


def test_over_http() -> None:
    with TestClient(new_server(StructuredOutputsResourcesServer).setup_webserver()) as client:
        answer = client.post("/verify", json=asked(PERSON, RIGHT, num_tools=2, tool_choice={"type": "x"}, unknown=1))
        assert answer.status_code == 200
        own = answer.json()
        assert (own["reward"], own["num_tools"], own["tool_choice"]) == (1.0, 2, {"type": "x"})
        assert own["schema_type"] == "json" and own["schema_repr"] is None and "unknown" not in own
        assert client.get("/reverify_mode").json() == "stateless"
        assert client.post("/verify", json=asked(PERSON, RIGHT, schema_type="ini")).status_code == 422
        assert client.post("/verify", json=verify_request({}, RIGHT)).status_code == 422


def test_metrics() -> None:
    kinds = [
        {"schema_type": "json", "problem_type": "p", "parallel_tool_calls": True, "num_tools": 2, "schema_repr": "r"},
        {"schema_type": "xml", "problem_type": "p", "response_mode": "text", "parallel_tool_calls": False},
    ]
    records = [
        {**kind, "reward": reward, "_ng_task_index": task, "_ng_rollout_index": i}
        for task, kind in enumerate(kinds)
        for i, reward in enumerate([1.0, float(task)])
    ]
    with TestClient(new_server(StructuredOutputsResourcesServer).setup_webserver()) as client:
        metrics = client.post("/aggregate_metrics", json={"verify_responses": records}).json()["agent_metrics"]
    assert {name: value for name, value in metrics.items() if name.startswith("mean/reward_")} == {
        "mean/reward_json": 0.5,
        "mean/reward_xml": 1.0,
        "mean/reward_p": 0.75,
        "mean/reward_repr_r": 0.5,
        "mean/reward_response_mode_text": 1.0,
        "mean/reward_parallel_tool_calls_true": 0.5,
        "mean/reward_parallel_tool_calls_false": 1.0,
        "mean/reward_num_tools_2": 0.5,
    }


# --- example data -----------------------------------------------------------------------------------------------------

PREFIXES = {"": "v3", "json_": "json", "v1_": "v1", "v4_": "v4"}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_example_rows(prefix: str) -> None:
    rows = check_example_rows(FOLDER, prefix=prefix)
    types = {row["schema_type"] for row in rows}
    modes = {row.get("response_mode", "text") for row in rows}
    expected = {"": set(SchemaType), "json_": {"json"}, "v1_": {"json", "yaml", "xml"}, "v4_": {"json"}}
    assert types == expected[prefix]
    assert modes == ({"text", "tool_call"} if prefix == "v4_" else {"text"})


@pytest.mark.parametrize("prefix", PREFIXES)
async def test_example_rollouts_are_still_judged_as_they_were(prefix: str) -> None:
    server = new_server(StructuredOutputsResourcesServer)
    await check_example_rollouts(server, FOLDER, own=["error_type", "error_message"], prefix=prefix)


def test_every_format_can_be_parsed() -> None:
    texts = {"json": "{}", "yaml": "{}", "xml": "<a/>", "toml": "", "csv": "a\n1"}
    for schema_type in SchemaType:
        parsed(texts[schema_type], schema_type)
