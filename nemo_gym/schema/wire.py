"""The base of every wire model: what a provider adds to an answer travels on."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Discriminator, Tag


class WireModel(BaseModel):
    """A model that keeps and dumps fields it does not declare."""

    model_config = ConfigDict(extra="allow")


class OpenModel(WireModel):
    """A nested object whose fields are the provider's business; they read as attributes."""


def plain(value: Any) -> Any:
    """A pydantic value as plain data, holding only the fields that were set; anything else as it is."""
    # Asked for every item of a history, nearly all of them dicts, and isinstance with a model class is slow.
    if type(value) is dict or not isinstance(value, BaseModel):
        return value
    return value.model_dump(exclude_unset=True)


def read_key(value: Any, key: str) -> Any:
    """A key of a dict or an attribute of anything else; None if it isn't there."""
    return value.get(key) if isinstance(value, dict) else getattr(value, key, None)


def as_list(value: Any) -> list[Any]:
    """A list as it is, anything else as none at all."""
    return value if isinstance(value, list) else []


def _text_or_list(value: Any) -> str:
    return "text" if isinstance(value, str) else "list"


def _text_or_object(value: Any) -> str:
    return "text" if isinstance(value, str) else "object"


# A string or something else, decided at once: so an error names one place instead of every member.
TEXT, LIST, OBJECT = Tag("text"), Tag("list"), Tag("object")
TEXT_OR_LIST = Discriminator(_text_or_list)
TEXT_OR_OBJECT = Discriminator(_text_or_object)
