"""Waiting for the model endpoints that the model servers of a run will call."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.keys import MODEL_ENDPOINT_READINESS_TIMEOUT_SECONDS_KEY_NAME, RESPONSES_API_MODELS

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from nemo_gym.launch.plan import ServerPlan

PROBE_SECONDS = 5.0
PROBE_EVERY_SECONDS = 3.0
REPORT_EVERY_SECONDS = 10.0
_URL_SUFFIX = "base_url"
_USERINFO = re.compile(r"(?<=://)[^/?#@\s]+@")
_PROBES_AT_ONCE = 16

State = Literal["up", "down", "unknown host"]


@dataclass(frozen=True)
class ModelEndpoint:
    """A URL and the config keys that name it."""

    url: str
    keys: tuple[str, ...]

    @property
    def probe_url(self) -> str:
        url = _USERINFO.sub("", self.url)  # urllib takes it for a part of the host
        bare = url.rstrip("/")
        return f"{bare}/models" if bare.endswith("/v1") else url

    @property
    def is_http(self) -> bool:
        try:
            host = urlsplit(self.url).hostname
        except ValueError:
            return False
        return bool(host) and self.url.lower().startswith(("http://", "https://"))

    def describe(self) -> str:
        return f"{self.url} (from {', '.join(self.keys)})"


def model_endpoints(config: Mapping[str, Any]) -> list[ModelEndpoint]:
    """Every `…base_url` of every model server in a resolved config; a URL counts once, whatever its final slash."""
    found: dict[str, tuple[str, list[str]]] = {}
    for key, url in _urls(config):
        found.setdefault(url.rstrip("/"), (url, []))[1].append(key)
    return [ModelEndpoint(url, tuple(keys)) for url, keys in found.values()]


def endpoints_of_run(config: DictConfig, plans: Iterable[ServerPlan]) -> list[ModelEndpoint]:
    """Those of the servers that are started; a block that can't be resolved is left for its server to complain of."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    resolved: dict[str, Any] = {}
    for plan in plans:
        with contextlib.suppress(OmegaConfBaseException):
            resolved[plan.name] = OmegaConf.to_container(config[plan.name], resolve=True)
    return model_endpoints(resolved)


@dataclass(frozen=True)
class Probed:
    """What came of asking an endpoint; `why` says in words what kept it from answering."""

    state: State
    why: str = ""


def probe(endpoint: ModelEndpoint, seconds: float = PROBE_SECONDS) -> Probed:
    """Whether something answers: any HTTP status and any TLS failure count."""
    opener = urllib.request.build_opener(*_no_proxy(endpoint.probe_url))
    try:
        with opener.open(endpoint.probe_url, timeout=seconds):
            return Probed("up")
    except urllib.error.HTTPError as error:
        error.close()
        return Probed("up")
    except http.client.HTTPException:
        return Probed("up")
    except urllib.error.URLError as error:
        return _of_failure(error.reason, seconds)
    except (OSError, ValueError) as error:
        return _of_failure(error, seconds)


def _of_failure(reason: object, seconds: float) -> Probed:
    if isinstance(reason, ssl.SSLError):
        return Probed("up")
    if isinstance(reason, socket.gaierror):
        return Probed("unknown host")
    if isinstance(reason, TimeoutError):
        return Probed("down", f"no answer within {seconds:.1g} s")
    said = (reason.strerror if isinstance(reason, OSError) else None) or str(reason)
    return Probed("down", said[:1].lower() + said[1:])


@dataclass
class EndpointWait:
    """`pause(seconds)` waits between rounds, and raises when the run has to end; `redact` cleans what is shown."""

    report: Callable[[str], None]
    pause: Callable[[float], None]
    redact: Callable[[str], str] = str
    _why: Mapping[ModelEndpoint, str] = field(default_factory=dict)
    _since: float = 0.0
    _timeout: float = 0.0

    def waiting(self) -> list[dict[str, Any]]:
        """Whom it waits for just now, from any thread: `endpoint`, `why`, and for how many seconds of how many."""
        waited = {"seconds": round(time.monotonic() - self._since, 1), "limit": self._timeout}
        return [
            {"endpoint": self.redact(endpoint.describe()), "why": self.redact(why), **waited}
            for endpoint, why in dict(self._why).items()
        ]

    def wait(self, endpoints: Iterable[ModelEndpoint], timeout: float) -> None:
        """Return when every endpoint answered.

        Raises ConfigError naming those without an http address at once, the silent ones after `timeout` seconds.
        """
        waiting = list(endpoints)
        self._refuse_other_addresses(waiting)
        started = self._since = time.monotonic()
        self._timeout = timeout
        deadline, report_at = started + timeout, started + REPORT_EVERY_SECONDS
        advice = f"; +{MODEL_ENDPOINT_READINESS_TIMEOUT_SECONDS_KEY_NAME}=N sets that"  # told once
        pool = ThreadPoolExecutor(_PROBES_AT_ONCE, thread_name_prefix="gym-endpoint")
        try:
            while waiting:
                limit = max(0.1, min(PROBE_SECONDS, deadline - time.monotonic()))
                found = dict(zip(waiting, pool.map(partial(probe, seconds=limit), waiting), strict=True))
                self._name_unknown_hosts(found)
                waiting = [endpoint for endpoint in waiting if found[endpoint].state == "down"]
                why = self._why = {endpoint: found[endpoint].why for endpoint in waiting}
                now = time.monotonic()
                if waiting and now >= deadline:
                    raise self._silent(why, timeout)
                if waiting and now >= report_at:
                    waited = f"{now - started:.0f} s of at most {timeout:g} s{advice}"
                    self.report(f"Waiting for the model ({waited}): {self._reasons(why)}")
                    advice = ""
                    report_at = now + REPORT_EVERY_SECONDS
                if waiting:
                    self.pause(min(PROBE_EVERY_SECONDS, max(0.0, deadline - now)))
        finally:
            self._why = {}
            pool.shutdown(wait=False, cancel_futures=True)

    def _refuse_other_addresses(self, endpoints: list[ModelEndpoint]) -> None:
        """What no client could ever ask is not waited for."""
        wrong = [endpoint for endpoint in endpoints if not endpoint.is_http]
        if wrong:
            raise ConfigError(f"Not an http(s) address: {self._names(wrong)}. Write it like http://localhost:8000/v1.")

    def _name_unknown_hosts(self, found: Mapping[ModelEndpoint, Probed]) -> None:
        for endpoint, probed in found.items():
            if probed.state == "unknown host":
                host = urlsplit(endpoint.url).hostname
                self.report(f"The host {host} of {self._names([endpoint])} can't be resolved here; not waiting for it.")

    def _names(self, endpoints: Iterable[ModelEndpoint]) -> str:
        return self.redact(", ".join(endpoint.describe() for endpoint in endpoints))

    def _reasons(self, why: Mapping[ModelEndpoint, str]) -> str:
        """Each endpoint with what keeps it from answering."""
        told = (
            f"{endpoint.describe()}: {reason}" if reason else endpoint.describe() for endpoint, reason in why.items()
        )
        return self.redact("; ".join(told))

    def _silent(self, why: Mapping[ModelEndpoint, str], timeout: float) -> ConfigError:
        return ConfigError(
            f"No answer within {timeout:g} s from {self._reasons(why)}. Start the endpoint, correct the address or "
            f"set +{MODEL_ENDPOINT_READINESS_TIMEOUT_SECONDS_KEY_NAME}=<seconds> (0 doesn't wait)."
        )


def _urls(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, entry in config.items():
        models = entry.get(RESPONSES_API_MODELS) if isinstance(entry, Mapping) else None
        for implementation, block in models.items() if isinstance(models, Mapping) else ():
            for key, value in block.items() if isinstance(block, Mapping) else ():
                if str(key).endswith(_URL_SUFFIX):
                    dotted = f"{name}.{RESPONSES_API_MODELS}.{implementation}.{key}"
                    yield from ((dotted, url) for url in _as_list(value) if isinstance(url, str) and url.strip())


def _as_list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _no_proxy(url: str) -> list[urllib.request.BaseHandler]:
    """This machine is never reached through a proxy."""
    host = urlsplit(url).hostname or ""
    return [urllib.request.ProxyHandler({})] if host == "localhost" or host.startswith("127.") or host == "::1" else []
