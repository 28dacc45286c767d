"""References from one server's configuration to another server."""

from typing import Literal

from pydantic import BaseModel


class ModelServerRef(BaseModel):
    """Names a model server instance."""

    type: Literal["responses_api_models"]
    name: str
