"""Building types before they are needed: pydantic does it late, and each process would pay for it again."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from nemo_gym.serve.json_app import json_app


def complete_types() -> None:
    """Complete every model imported so far, as far as its parts are known, and have FastAPI build one route."""
    for model in _subclasses(BaseModel):
        if not model.__pydantic_complete__:
            model.model_rebuild(raise_errors=False)
    _build_one_route()


def _subclasses(parent: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for child in parent.__subclasses__():
        yield child
        yield from _subclasses(child)


class _Body(BaseModel):
    value: int = 0


def _build_one_route() -> None:
    async def handler(body: _Body) -> _Body:
        return body

    app = json_app()
    app.post("/")(handler)
    app.build_middleware_stack()
