"""A tutorial with several steps: look up the value of each synonym, then hand in all of them in order."""

from typing import Any, ClassVar

from fastapi import FastAPI
from pydantic import BaseModel

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    NeMoGymResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.verifiers.long_texts import read_apart
from nemo_gym.verifiers.tool_calls import calls_of
from nemo_gym.verifiers.verdicts import RowError, unmeasured, verdict

HAND_IN = "extract_synonym_values"
_LARGEST = 2**63


class ExampleMultiStepResourcesServerConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS


class GetSynonymValueRequest(BaseModel):
    synonym: str


class GetSynonymValueResponse(BaseModel):
    synonym_value: int


class ExtractSynonymValuesRequest(BaseModel):
    synonym_values: list[int]


class ExtractSynonymValuesResponse(BaseModel):
    success: bool


class ExampleMultiStepRunRequest(BaseRunRequest):
    """The minefield is the term itself, which is no synonym of its own."""

    id: int
    expected_synonym_values: list[int]
    expected_synonyms: list[str]
    minefield_label: str
    minefield_label_value: int


class ExampleMultiStepVerifyRequest(ExampleMultiStepRunRequest, BaseVerifyRequest):
    pass


class ExampleMultiStepVerifyResponse(ExampleMultiStepVerifyRequest, BaseVerifyResponse):
    """`parsed_synonym_values` were handed in, `set_overlap` is the share of the expected ones among them."""

    parsed_synonym_values: list[int] = []
    accuracy: bool = False
    set_overlap: float = 0.0
    original_term_minefield_hit: bool = False
    order_instruction_following_failure: bool = False


class ExampleMultiStepResourcesServer(SimpleResourcesServer):
    config: ExampleMultiStepResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/get_synonym_value")(self.get_synonym_value)
        app.post(f"/{HAND_IN}")(self.extract_synonym_values)
        return app

    async def get_synonym_value(self, body: GetSynonymValueRequest) -> GetSynonymValueResponse:
        """The value of a synonym."""
        value = await read_apart(len(body.synonym), value_of, body.synonym)
        return GetSynonymValueResponse(synonym_value=value)

    async def extract_synonym_values(self, body: ExtractSynonymValuesRequest) -> ExtractSynonymValuesResponse:
        """Hand in the values of all synonyms."""
        return ExtractSynonymValuesResponse(success=True)

    async def verify(self, body: ExampleMultiStepVerifyRequest) -> ExampleMultiStepVerifyResponse:  # type: ignore[override]
        expected = body.expected_synonym_values
        if not expected:
            error = RowError("expected_synonym_values is empty: a row needs something to hand in")
            return verdict(ExampleMultiStepVerifyResponse, body, unmeasured(error))
        handed_in = last_handed_in(body.response)
        values = whole_numbers(handed_in)
        overlap = len(set(values) & set(expected)) / len(expected)
        is_right = values == expected
        return verdict(
            ExampleMultiStepVerifyResponse,
            body,
            reward=float(is_right),
            parsed_synonym_values=values,
            accuracy=is_right,
            set_overlap=overlap,
            original_term_minefield_hit=body.minefield_label in handed_in or body.minefield_label_value in handed_in,
            order_instruction_following_failure=not is_right and overlap == 1.0,
        )


def value_of(synonym: str) -> int:
    """The sum of the code points of a text."""
    return sum(map(ord, synonym))


def last_handed_in(response: NeMoGymResponse) -> list[Any]:
    """What the last call that hands in has in its list; nothing where there is no such call, or no list in it."""
    calls = [call for call in calls_of(response) if call.name == HAND_IN]
    values = calls[-1].arguments.values.get("synonym_values") if calls else None
    return values if isinstance(values, list) else []


def whole_numbers(values: list[Any]) -> list[int]:
    """The values if all of them are whole numbers, else none: the tool takes no others."""
    numbers = [_whole(value) for value in values]
    return [] if None in numbers else [number for number in numbers if number is not None]


def _whole(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


if __name__ == "__main__":
    ExampleMultiStepResourcesServer.run_webserver()
