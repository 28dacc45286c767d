"""Running the command-line program that a provider drives."""

from __future__ import annotations

from nemo_gym.sandbox.errors import SandboxUnavailableError
from nemo_gym.sandbox.processes import Program
from nemo_gym.sandbox.providers.base import CANNOT_RUN, SandboxExecResult


async def run_program(program: Program, timeout_s: float | None, hint: str) -> SandboxExecResult:
    """What the program said, as text; error type `timeout` when it was ended.

    Raises SandboxUnavailableError with `hint` when the program isn't there.
    """
    try:
        done = await program.run(timeout_s)
    except FileNotFoundError as error:
        raise SandboxUnavailableError(f"`{program.argv[0]}` was not found: {hint}") from error
    except OSError as error:
        raise SandboxUnavailableError(f"`{program.argv[0]}` can't be run ({error.strerror}): {hint}") from error
    stdout, stderr = (stream.decode("utf-8", errors="replace") for stream in (done.stdout, done.stderr))
    if done.timed_out:
        note = f"The command was ended after {timeout_s:g} s."
        return SandboxExecResult(stdout, f"{stderr.rstrip()}\n{note}".lstrip(), CANNOT_RUN, "timeout")
    return SandboxExecResult(stdout, stderr, done.return_code if done.return_code >= 0 else 128 - done.return_code)


def masked(text: str, env: dict[str, str]) -> str:
    """The text without the values of an environment, which may be secrets."""
    for value in sorted((value for value in env.values() if len(value) > 3), key=len, reverse=True):
        text = text.replace(value, "****")
    return text
