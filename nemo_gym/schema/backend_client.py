"""The client for OpenAI-compatible backends, without its HTTP side."""

import sys
from abc import abstractmethod
from asyncio import sleep
from json import JSONDecodeError
from typing import Any

from pydantic import BaseModel, Field, PrivateAttr

from nemo_gym.schema.backend_answers import (
    RATE_LIMIT_ERROR_CODES,
    Verdict,
    judge,
    retry_after_seconds,
    without_userinfo,
)
from nemo_gym.schema.backend_endpoint import Attempts, Endpoint, Trip, endpoint_of
from nemo_gym.schema.errors import InvalidAnswer
from nemo_gym.schema.pressure import note_pressure

_SHOWN_CHARS = 200
_NOTABLE_WAIT_SECONDS = 5.0


class BackendClient(BaseModel):
    """A client for one OpenAI-compatible backend.

    Keyword arguments of the `create_*` methods are the JSON body; they return the parsed answer. An HTTP error that
    remains after the retries raises aiohttp's ClientResponseError with the body in `response_content`. A backend that
    refuses the key or the budget is not asked again for a while: PermanentEndpointError.
    """

    base_url: str
    api_key: str
    internal: bool = False
    max_connection_retries: int | None = None
    max_http_attempts: int = Field(default=3, ge=1)
    default_headers: dict[str, str] = Field(default_factory=dict)

    _permanent_trip: tuple[int, bytes, str] | None = PrivateAttr(default=None)
    _trip: Trip | None = PrivateAttr(default=None)

    @abstractmethod
    def _http(self, name: str) -> Any:
        """One of the HTTP side's functions and errors, as it is at the time of the call."""

    async def create_models(self) -> dict[str, Any]:
        """GET /models."""
        return await self._call("GET", self._url("models"))

    async def create_chat_completion(self, **kwargs: Any) -> dict[str, Any]:
        """POST /chat/completions."""
        return await self._call("POST", self._url("chat/completions"), kwargs)

    async def create_completion(self, **kwargs: Any) -> dict[str, Any]:
        """POST /completions."""
        return await self._call("POST", self._url("completions"), kwargs)

    async def create_response(self, **kwargs: Any) -> dict[str, Any]:
        """POST /responses."""
        return await self._call("POST", self._url("responses"), kwargs)

    async def create_tokenize(self, **kwargs: Any) -> dict[str, Any]:
        """POST /tokenize, which vLLM serves beside /v1."""
        root = self.base_url.rstrip("/").removesuffix("/v1")
        return await self._call("POST", f"{root}/tokenize", kwargs)

    def _url(self, path: str) -> str:
        return f"{self.base_url.rstrip('/')}/{path}"

    async def _call(self, method: str, url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        request_kwargs: dict[str, Any] = {"url": url} if body is None else {"url": url, "json": body}
        response = await self._request(method=method, **request_kwargs)
        await self._raise_for_status(response, request_kwargs)
        try:
            parsed: dict[str, Any] = await self._http("get_response_json")(response)
        except JSONDecodeError as error:
            raise InvalidAnswer(f"{without_userinfo(url)} answered 200 with a body that is no JSON: {error}") from None
        return parsed

    async def _request(self, **request_kwargs: Any) -> Any:
        """One call, retried; refused without network use after a trip."""
        self._raise_permanent_error()
        headers = {**self.default_headers, **(request_kwargs.get("headers") or {})}
        headers["Authorization"] = f"Bearer {self.api_key}"
        return await self._request_with_retry(**{**request_kwargs, "headers": headers})

    async def _request_with_retry(self, **request_kwargs: Any) -> Any:
        endpoint = endpoint_of(self.base_url, self.api_key)
        attempts = Attempts(self.max_http_attempts, self.internal)
        while True:
            await self._quiet(endpoint, attempts)
            response, content = await self._attempt(attempts, request_kwargs)
            if response is None:
                continue
            verdict = judge(response.status, content)
            if verdict in (Verdict.TRIP, Verdict.TRIP_AND_RETURN):
                self._trip_permanent_error(response.status, content, request_kwargs.get("url"))
            if verdict is Verdict.TRIP:
                self._raise_permanent_error()
            if verdict in (Verdict.RETURN, Verdict.TRIP_AND_RETURN):
                return response
            asked_for = retry_after_seconds(getattr(response, "headers", None))
            pause = attempts.pause_after(response.status, verdict, asked_for)
            self._report("model_retry", request_kwargs.get("url"), response.status, content, attempts)
            if response.status in RATE_LIMIT_ERROR_CODES:
                note_pressure(asked_for or 0.0)
                endpoint.ask_for_quiet(pause or asked_for or 0.0, response.status)
            elif pause is not None:
                attempts.budget -= pause
                if pause > _NOTABLE_WAIT_SECONDS:
                    self._announce_wait(pause, attempts)
                await sleep(pause)
            if pause is None:
                await self._http("raise_for_status")(response, content)
                return response

    async def _attempt(self, attempts: Attempts, request_kwargs: dict[str, Any]) -> tuple[Any, bytes]:
        """One answer with its body, read here so that half an answer is noticed here; None if there is to be another.

        An answer that was cut off may be asked for again: generating has no effect but its cost.
        """
        try:
            response = await self._http("request")(
                _internal=self.internal, _max_connection_retries=self.max_connection_retries, **request_kwargs
            )
            return response, await response.read()
        except Exception as error:
            again = self.max_connection_retries is None and self._http("is_cut_off")(error)
            pause = attempts.pause_after_cut_off() if again else None
            if pause is None:
                raise
            self._report("model_retry", request_kwargs.get("url"), None, repr(error).encode(), attempts)
            attempts.budget -= pause
            await sleep(pause)
            return None, b""

    async def _quiet(self, endpoint: Endpoint, attempts: Attempts) -> None:
        """Waits until the backend may be called again, within what is left of the call's time."""
        while attempts.budget > 0 and (pause := min(endpoint.wait(), attempts.budget)) > 0:
            attempts.budget -= pause
            if pause > _NOTABLE_WAIT_SECONDS and endpoint.is_news():
                self._announce_wait(pause, attempts)
            await sleep(pause)
        self._raise_permanent_error()

    async def _raise_for_status(self, response: Any, request_kwargs: dict[str, Any]) -> None:
        """Raises aiohttp's ClientResponseError, with the body in `response_content`, for an error status."""
        await self._http("raise_for_status")(response)

    def _trip_permanent_error(self, status: int, content: bytes | str, url: Any) -> None:
        """Ends the use of this backend, by all clients with this key, until the trip expires."""
        body = content.encode() if isinstance(content, str) else content
        trip = Trip(status, body, str(url))
        is_news = endpoint_of(self.base_url, self.api_key).take_trip(trip)
        self._trip, self._permanent_trip = trip, (status, body, str(url))
        self._report("model_retry_stop", url, status, body)
        if is_news:
            self._warn_of_refusal(trip)

    def _raise_permanent_error(self) -> None:
        """Raises PermanentEndpointError while a trip is active, this client's or another's of the same backend."""
        for trip in (self._trip, endpoint_of(self.base_url, self.api_key).trip):
            if trip is not None and trip.active:
                raise self._http("PermanentEndpointError").of(trip.status, trip.content, trip.url)
        self._trip = self._permanent_trip = None

    def _warn_of_refusal(self, trip: Trip) -> None:
        """Says once, to the person who started the run, what every later call will end in."""
        said = " ".join(self._shown(trip.content).split())
        cure = "wait, or raise it" if trip.status == 429 else "set the right one (of the policy model: policy_api_key)"
        print(
            f"Warning: {without_userinfo(self.base_url)} {trip.reason} (HTTP {trip.status}: {said}). Its calls fail at "
            f"once now, with one try a minute: {cure} and start the servers again.",
            file=sys.stderr,
            flush=True,
        )

    def _shown(self, content: bytes) -> str:
        """The beginning of an answer, without the key that some backends repeat."""
        return content.decode("utf-8", "replace").replace(self.api_key or "\0", "****")[:_SHOWN_CHARS]

    def _announce_wait(self, seconds: float, attempts: Attempts) -> None:
        """Says that nothing will happen for a while: a backend may ask for minutes."""
        tries = f"try={attempts.failures + 1} max_tries={attempts.allowed}"
        print(f"[model_wait url={without_userinfo(self.base_url)} seconds={seconds:.0f} {tries}]", flush=True)

    def _report(
        self, what: str, url: Any, status: int | None, content: bytes, attempts: Attempts | None = None
    ) -> None:
        kind = "connection" if status is None else "rate_limit" if status in RATE_LIMIT_ERROR_CODES else "http_error"
        text = self._shown(content)
        tries = f" try={attempts.failures} max_tries={attempts.allowed}" if attempts else ""
        print(f"[{what} url={without_userinfo(url)} status={status} kind={kind}{tries} error_msg={text}]", flush=True)
