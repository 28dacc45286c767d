"""What a request may ask for that another dialect cannot say, and what is wrong in any dialect."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from pydantic import ValidationError

from nemo_gym.errors import GymError


class UnsupportedInDialect(NotImplementedError, GymError):
    """A valid request or answer that has no form in the dialect it is converted to."""

    refusal_status: ClassVar[int] = 400
    """The HTTP status with which a server refuses the request."""


class InvalidContent(ValueError, GymError):
    """Content that is wrong in any dialect."""

    refusal_status: ClassVar[int | None] = 400


class InvalidAnswer(InvalidContent):
    """A backend's answer that is wrong in any dialect: not the fault of who asked."""

    refusal_status: ClassVar[int | None] = None


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Names `what` in an InvalidContent when its shape isn't what the code inside expects of it."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        raise InvalidContent(f"{what} is malformed: {place}: {first['msg']}") from error
    except KeyError as error:
        raise InvalidContent(f"{what} is malformed: {error.args[0]!r} is missing") from error
    except (AttributeError, TypeError) as error:
        raise InvalidContent(f"{what} is malformed: {error}") from error
