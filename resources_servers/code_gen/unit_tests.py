"""The unit tests of a row: what goes in and what should come out, as texts."""

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError, model_validator

from nemo_gym.verifiers.verdicts import RowError

_MAX_UNPACKED_BYTES = 1024 * 1024 * 1024


class UnitTests(BaseModel):
    """`fn_name` is the function to call, None for programs that read stdin and print."""

    inputs: list[str]
    outputs: list[str]
    fn_name: str | None = None

    @classmethod
    def of(cls, fields: Any) -> "UnitTests":
        """The tests that a row's `unit_tests` hold. Raises RowError, also for none and for unpaired ones."""
        try:
            tests = cls.model_validate(_unpacked(fields) if isinstance(fields, Mapping) else fields)
        except (ValidationError, binascii.Error, zlib.error, ValueError, TypeError) as error:
            first = str(error).splitlines()[0]
            raise RowError(
                f"verifier_metadata.unit_tests can't be read ({first}): give lists `inputs` and `outputs`, or `packed`."
            ) from error
        if not tests.inputs:
            raise RowError("verifier_metadata.unit_tests is empty, so that any program would pass: add a test.")
        return tests

    @model_validator(mode="after")
    def are_paired(self) -> "UnitTests":
        if len(self.inputs) != len(self.outputs):
            raise ValueError(f"{len(self.inputs)} inputs and {len(self.outputs)} outputs")
        return self


@dataclass(frozen=True)
class Call:
    """A test of a function: its arguments, and what it should return."""

    arguments: list[Any]
    expected: Any


def calls_of(tests: UnitTests) -> list[Call]:
    """The tests of a function; arguments are a JSON value a line. Raises RowError."""
    calls = []
    for number, (given, expected) in enumerate(zip(tests.inputs, tests.outputs, strict=True)):
        try:
            arguments = [json.loads(line) for line in given.split("\n") if line.strip()]
            calls.append(Call(arguments, json.loads(expected)))
        except (ValueError, RecursionError) as error:
            raise RowError(f"Test {number} of the row's unit_tests is no JSON: {error}.") from error
    return calls


def _unpacked(fields: Mapping[str, Any]) -> dict[str, Any]:
    if fields.get("packed") is None:
        return dict(fields)
    reader = zlib.decompressobj()
    text = reader.decompress(base64.b64decode(fields["packed"]), _MAX_UNPACKED_BYTES)
    if reader.unconsumed_tail:
        raise ValueError(f"more than {_MAX_UNPACKED_BYTES} bytes")
    return {"fn_name": fields.get("fn_name"), **json.loads(text)}
