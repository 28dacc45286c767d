"""Sending a request over the network."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import ClientResponse, ClientSession, ClientTimeout

from nemo_gym.schema.pressure import note_pressure, pressure_in
from nemo_gym.serve.arrived_body import arrived
from nemo_gym.serve.connections import Connecting, current_attempt
from nemo_gym.serve.cookies import cookie_header
from nemo_gym.serve.deadline import DeadlineExceededError, is_over, seconds_left, within_call_limit, within_deadline
from nemo_gym.serve.redaction import redact
from nemo_gym.serve.retries import REPEATED_HEADER, Fault, Patience, fault_of, has_key, may_repeat
from nemo_gym.serve.whereabouts import followed

PRINT_EVERY = 100
"""Of a fault the first occurrence in a process is printed, then every hundredth."""

faults_seen: Counter[Fault] = Counter()

_CONNECT_SECONDS = 10.0
"""A node that is gone answers nobody: it isn't waited for as long as the kernel would."""


async def send(
    session: ClientSession,
    method: str,
    url: str,
    *,
    tries: int | None = None,
    debug: bool = False,
    internal: bool = False,
    **options: Any,
) -> ClientResponse:
    """One request with aiohttp's options, tried again as `retries` allows; the answer may have any HTTP status.

    `tries` replaces the usual number of tries. Every try ends with the current deadline, which `internal` receivers are
    told; a total `timeout` is for all tries together. Raises what aiohttp raised last, at once when it is no transport
    error or when repeating could run the request's effect twice; DeadlineExceededError when the time is over. A server
    that moves is followed to where it is, and waited for while it is nowhere.
    """
    options = within_call_limit(encoded(options))
    headers = options.get("headers") or {}
    reads_ahead = internal or has_key(headers)
    patience = Patience(limit=tries)
    started, total = time.monotonic(), _total(options.get("timeout"))
    if (moving := followed.get()) is not None:
        moving.whereabouts.note(session)
    while True:
        bounded = within_deadline(options, announce=internal)
        if moving is not None:
            bounded = _connecting_in_time(bounded)
        attempt = Connecting()
        token = current_attempt.set(attempt)
        try:
            response = await session.request(method, url, **bounded)
            if reads_ahead and response.content_type == "application/json":
                # So that a connection that breaks during the body counts as broken here; the stream stays readable.
                response.content = arrived(await response.read())
            if internal:
                note_pressure(pressure_in(response.headers))
            return response
        except Exception as error:
            now = time.monotonic()
            pause = _pause(error, attempt, patience, method, headers, now)
            if moving is not None and _found_it_gone(error, attempt, method, headers, now):
                if (elsewhere := moving.moved_url(url)) is not None:
                    url, patience, pause = elsewhere, Patience(limit=tries), 0.0
                elif pause is None:
                    pause = moving.pause()
            if pause is not None and now + pause - started >= total:
                pause = None
            _report(error, url, patience, pause, debug)
            if is_over():
                raise DeadlineExceededError(f"the rollout's deadline passed while {_bare(url)} was asked") from error
            if pause is None or pause >= (seconds_left() or math.inf):
                raise
            if internal and attempt.connected and has_key(headers):
                options["headers"] = _merged(headers, {REPEATED_HEADER: "1"})
        finally:
            current_attempt.reset(token)
        await asyncio.sleep(pause)


def encoded(options: Mapping[str, Any]) -> dict[str, Any]:
    """Request options with JSON and cookies already in wire form; the caller's own objects are left alone."""
    options = dict(options)
    headers = {}
    if options.get("json") is not None:
        options["data"] = orjson.dumps(options.pop("json"))
        headers["Content-Type"] = "application/json"
    cookies = options.pop("cookies", None)
    if cookies and _has_cookie(options.get("headers")):
        options["cookies"] = cookies  # aiohttp merges them with the header
    elif cookies:
        headers["Cookie"] = cookie_header(cookies)
    if headers:
        options["headers"] = _merged(options.get("headers"), {name: value for name, value in headers.items() if value})
    return options


def _has_cookie(headers: Any) -> bool:
    return bool(headers) and any(name.lower() == "cookie" for name, _ in _pairs(headers))


def _merged(given: Any, added: dict[str, str]) -> dict[str, str]:
    taken = {name.lower() for name in added}
    return {**{name: value for name, value in _pairs(given or {}) if name.lower() not in taken}, **added}


def _pairs(headers: Any) -> list[tuple[str, str]]:
    return list(headers.items() if isinstance(headers, Mapping) else headers)


def _pause(
    error: Exception, attempt: Connecting, patience: Patience, method: str, headers: Mapping[str, str], now: float
) -> float | None:
    fault = fault_of(error)
    if fault is None:
        return None
    faults_seen[fault] += 1
    pause = patience.pause_after(fault, now)
    return pause if pause is not None and may_repeat(fault, attempt, method, headers, now) else None


def _found_it_gone(error: Exception, attempt: Connecting, method: str, headers: Mapping[str, str], now: float) -> bool:
    """Whether the server may be somewhere else, and the request may be sent there."""
    fault = fault_of(error)
    is_gone = fault in (Fault.UNREACHABLE, Fault.DROPPED) or (fault is Fault.TIMED_OUT and not attempt.connected)
    return is_gone and fault is not None and may_repeat(fault, attempt, method, headers, now)


def _report(error: Exception, url: str, patience: Patience, pause: float | None, debug: bool) -> None:
    fault = fault_of(error)
    if fault is None or not (debug or faults_seen[fault] % PRINT_EVERY == 1):
        return
    what = f"{fault.value} ({type(error).__name__}: {error}) from {_bare(url)}"
    then = "given up" if pause is None else f"next try in {pause:.1f} s"
    advice = " Raise `ulimit -n` or lower the concurrency." if fault is Fault.OUT_OF_RESOURCES else ""
    say(redact(f"[request] {what}: try {patience.tries}, {then}; {faults_seen[fault]} such failures so far.{advice}"))


def say(text: str) -> None:
    """A line on standard output, above a progress bar where this process shows one."""
    tqdm = sys.modules.get("tqdm")
    if tqdm is None:
        print(text)
    else:
        tqdm.tqdm.write(text)


def _total(timeout: Any) -> float:
    """Seconds that a request may take as a whole."""
    seconds = timeout.total if isinstance(timeout, ClientTimeout) else timeout
    return seconds if isinstance(seconds, int | float) and seconds > 0 else math.inf


def _connecting_in_time(options: dict[str, Any]) -> dict[str, Any]:
    """Request options with a limit on making the connection."""
    given = options.get("timeout")
    limit = given if isinstance(given, ClientTimeout) else ClientTimeout(total=given)
    connect = min(limit.sock_connect or math.inf, _CONNECT_SECONDS)
    bounded = ClientTimeout(total=limit.total, connect=limit.connect, sock_read=limit.sock_read, sock_connect=connect)
    return {**options, "timeout": bounded}


def _bare(url: str) -> str:
    return url.split("?", 1)[0]
