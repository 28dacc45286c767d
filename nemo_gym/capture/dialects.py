"""The three APIs a model server speaks, as captures label them."""

from __future__ import annotations

from typing import Literal

Dialect = Literal["responses", "chat", "messages"]

DIALECT_OF_PATH: dict[str, Dialect] = {
    "/v1/responses": "responses",
    "/v1/chat/completions": "chat",
    "/v1/messages": "messages",
}
