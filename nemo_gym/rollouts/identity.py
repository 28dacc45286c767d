"""What a run is a run of: options, config, input and code, as far as they decide what its records say.

Ports, hosts of one's own network, places in the file system and widths (how much runs at once) may differ between a run
and its resumption; secrets are never part of it. Everything here ends in the journal, so it holds plain JSON values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.interpolations import tolerantly_resolved
from nemo_gym.config.keys import (
    NEMO_GYM_RESERVED_TOP_LEVEL_KEYS,
    SERVER_TYPES,
    SKIP_VERIFICATION_KEY_NAME,
    SKIP_VERIFICATION_REWARD_KEY_NAME,
)
from nemo_gym.config.roots import server_directory
from nemo_gym.config.secrets import MASK, Redactor, looks_like_secret_key
from nemo_gym.package_info import __version__
from nemo_gym.rollouts.options import RolloutCollectionConfig

Values = dict[str, Any]

_OPTIONS = (
    "agent_map",
    "fan_out",
    "limit",
    "num_repeats",
    "num_repeats_add_seed",
    "responses_create_params",
    "environment_routing_mode",
    "environment_server_name",
    "environment_server_routes",
    "prompt_config",
    "skills",
)
"""What the plan is made by; a resumption that says nothing about one of them takes it from the plan."""

_TOP_LEVEL = (SKIP_VERIFICATION_KEY_NAME, SKIP_VERIFICATION_REWARD_KEY_NAME)
_NOT_IDENTITY = frozenset({"datasets", "headers"})
_PLACES = frozenset({"port", "ports", "host", "hosts", "hostname", "address"})
_WIDTHS = frozenset(
    {"workers", "worker", "concurrency", "concurrent", "parallel", "parallelism", "processes", "threads", "replicas"}
)
_WORD = re.compile(r"[a-z0-9]+")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
_OWN_NETWORK = (".local", ".localhost", ".internal", ".lan", ".cluster", ".svc")
_UNREAD_FOLDERS = frozenset({"tests", "__pycache__", "node_modules"})
UNKNOWN = "unknown"
"""The code of a component that isn't installed here."""

_COPY_OF_SOURCE_FILE = "environment.py"
"""What an environment's own file is called in the folder that serves it."""

_UNSET = "unset"
_SHOWN_CHARACTERS = 80
_LISTED = 8


@dataclass(frozen=True)
class Identity:
    """`said` are the options that were given, `source` the digest of the rows and their split as far as known.

    `files` are the digests of the files of `code`, by component and name, to tell which of them differ.
    """

    config: Values = field(default_factory=dict)
    code: Values = field(default_factory=dict)
    files: Values = field(default_factory=dict)
    options: Values = field(default_factory=dict)
    source: Values = field(default_factory=dict)
    said: frozenset[str] = frozenset()

    @classmethod
    def of_run(cls, config: RolloutCollectionConfig, global_config: Mapping[Any, Any]) -> Identity:
        """Reads the input once; a missing one leaves its digest unknown."""
        servers = servers_identity(global_config)
        said = frozenset(config.model_fields_set) | ({"agent_map"} if config.agent_map else set())
        return replace(servers, options=_options(config), source=_source(config), said=said)

    @classmethod
    def of_entry(cls, entry: Mapping[str, Any]) -> Identity:
        """What a journal holds of it; parts that aren't there are empty."""

        def part(name: str) -> Values:
            value = entry.get(name)
            return dict(value) if isinstance(value, Mapping) else {}

        return cls(part("config"), part("code"), part("files"), part("options"), part("source"))

    def as_entry(self) -> dict[str, Values]:
        parts = {"config": self.config, "code": self.code, "files": self.files}
        return {**parts, "options": self.options, "source": self.source}

    def with_plan_of(self, earlier: Identity) -> Identity:
        """These servers with the plan of an earlier run."""
        return replace(self, options=earlier.options, source=earlier.source)


def servers_identity(global_config: Mapping[Any, Any]) -> Identity:
    """The part that the servers decide."""
    plain = tolerantly_resolved(global_config)
    redact = Redactor.from_config(plain)
    config = {name: plain[name] for name in _TOP_LEVEL if plain.get(name) is not None}
    code: Values = {"nemo_gym": __version__}
    files: Values = {}
    for instance, server_type, implementation, block in _blocks(plain):
        prefix = f"{instance}.{server_type}.{implementation}"
        config.update({name: _redacted(value, redact) for name, value in _flat(prefix, block)})
        name = f"{server_type}/{implementation}"
        if name not in code:
            code[name], files[name] = _code_digests(server_type, implementation, block.get("source_file"))
    return Identity(config=config, code=code, files=files)


def differences(old: Identity, new: Identity, *, servers_only: bool = False) -> list[str]:
    """What differs, as `name: old → new`; a part that one of them doesn't know is no difference."""
    found: list[str] = []
    if old.config and new.config:
        found += _differing(old.config, new.config, dict.fromkeys([*old.config, *new.config]))
    if not servers_only:
        found += _differing(old.options, new.options, [name for name in old.options if name in new.said])
        found += _source_difference(old.source, new.source)
    shared = [name for name in old.code if name in new.code and UNKNOWN not in (old.code[name], new.code[name])]
    return found + [f"code of {line}" for line in _differing_code(old, new, shared)]


def listed(found: list[str]) -> str:
    """Differences as lines of a message."""
    more = [f"and {len(found) - _LISTED} more"] if len(found) > _LISTED else []
    return "\n".join(f"  {line}" for line in [*found[:_LISTED], *more])


def _options(config: RolloutCollectionConfig) -> Values:
    values = {name: getattr(config, name) for name in _OPTIONS}
    values["limit"] = config.limit or None
    values["prompt_config"] = _prompt_digest(config.prompt_config) if config.prompt_config else None
    values["skills"] = _skills_digest(config.skills.path) if config.skills is not None else None
    plain: Values = orjson.loads(orjson.dumps(values, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS))
    return {name: _without_secrets(value) for name, value in plain.items()}


def _source(config: RolloutCollectionConfig) -> Values:
    split = getattr(config, "split", None)
    source: Values = {"split": split} if split else {}
    with suppress(ConfigError, OSError):
        files = config.row_files
        source["digest"] = _digest_of(file.path for file in files)
        source["name"] = ", ".join(file.path.name for file in files)
    return source


def _blocks(plain: Mapping[str, Any]) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    for name, entry in plain.items():
        if name in NEMO_GYM_RESERVED_TOP_LEVEL_KEYS or not isinstance(entry, Mapping):
            continue
        for server_type in SERVER_TYPES:
            implementations = entry.get(server_type)
            for implementation, block in implementations.items() if isinstance(implementations, Mapping) else ():
                if isinstance(block, Mapping):
                    yield str(name), server_type, str(implementation), block


def _flat(prefix: str, value: object) -> Iterator[tuple[str, Any]]:
    """The leaves below a mapping by their dotted names, without what may differ."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            if not _may_differ(str(key), item):
                yield from _flat(f"{prefix}.{key}", item)
    else:
        yield prefix, _settled(value)


def _may_differ(key: str, value: object) -> bool:
    words = set(_WORD.findall(key.lower()))
    if key in _NOT_IDENTITY or words & (_PLACES | _WIDTHS):
        return True
    return looks_like_secret_key(key) and not isinstance(value, Mapping)


def _settled(value: object) -> Any:
    """A value without the places it names: of an absolute path its last part, of a URL no host of the own network."""
    if isinstance(value, list):
        parts = [_settled(item) for item in value]
        is_fleet = bool(parts) and all(isinstance(item, str) and _URL.fullmatch(item) for item in value)
        return _fleet(parts) if is_fleet else parts
    if isinstance(value, Mapping):
        return {str(key): _settled(item) for key, item in value.items() if not _may_differ(str(key), item)}
    if isinstance(value, str):
        if _URL.fullmatch(value):
            return _settled_url(value)
        return f"…/{Path(value).name}" if value.startswith(("/", "~/")) else value
    return value if isinstance(value, int | float | bool | None) else str(value)


def _fleet(urls: list[Any]) -> Any:
    """Several replicas of one server are a width."""
    distinct = list(dict.fromkeys(urls))
    return distinct[0] if len(distinct) == 1 else distinct


def _settled_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return url
    return f"{parts.scheme}://{'*' if _is_of_own_network(host) else host}{parts.path.rstrip('/')}"


def _is_of_own_network(host: str) -> bool:
    with suppress(ValueError):
        ip_address(host)
        return True
    return "." not in host or host.endswith(_OWN_NETWORK)


def _redacted(value: Any, redact: Redactor) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redacted(item, redact) for item in value]
    if isinstance(value, Mapping):
        return {key: _redacted(item, redact) for key, item in value.items()}
    return value


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = {key: item for key, item in value.items() if not looks_like_secret_key(str(key))}
        return {key: _without_secrets(item) for key, item in kept.items()}
    return value


def _differing(old: Values, new: Values, names: Iterable[str]) -> list[str]:
    pairs = ((name, old.get(name, _UNSET), new.get(name, _UNSET)) for name in names)
    return [
        f"{name}: {_shown(before)} → {_shown(after)}"
        for name, before, after in pairs
        if before != after and MASK not in (before, after)
    ]


def _source_difference(old: Values, new: Values) -> list[str]:
    if old.get("split") and new.get("split") and old["split"] != new["split"]:
        return [f"split: {old['split']} → {new['split']}"]
    if old.get("digest") and new.get("digest") and old["digest"] != new["digest"]:
        names = old.get("name"), new.get("name")
        told = f"{names[0]} → {names[1]}" if names[0] != names[1] else f"{names[0]} has other rows now"
        return [f"input: {told}"]
    return []


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def _differing_code(old: Identity, new: Identity, names: Iterable[str]) -> Iterator[str]:
    """The components whose code differs, each with the files that do, where both runs know them."""
    for name in names:
        before, now = old.files.get(name), new.files.get(name)
        if old.code[name] != new.code[name] and before and now:
            yield f"{name}: {_changed(before, now)}"
        else:
            yield from _differing(old.code, new.code, [name])


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """`app.py has changed, data.py is new`."""
    changed = [name for name in before if name in now and before[name] != now[name]]
    told = [f"{name} has changed" for name in changed]
    told += [f"{name} is new" for name in now if name not in before]
    told += [f"{name} is gone" for name in before if name not in now]
    more = [f"and {len(told) - _LISTED} more"] if len(told) > _LISTED else []
    return ", ".join([*told[:_LISTED], *more])


def _code_digests(server_type: str, implementation: str, source_file: object) -> tuple[str, Values]:
    """Digest of the `*.py` of a component, names included, and of each; UNKNOWN where it isn't installed here.

    Of an environment in one file, that file is called by its own name.
    """
    try:
        folder = server_directory(server_type, implementation)
    except (ConfigError, OSError):
        return UNKNOWN, {}
    files: Values = {}
    digest = blake2b(digest_size=8)
    for path in _sources(folder):
        name, content = path.relative_to(folder).as_posix(), path.read_bytes()
        digest.update(name.encode() + b"\0" + content + b"\0")
        is_own = isinstance(source_file, str) and name == _COPY_OF_SOURCE_FILE
        files[Path(str(source_file)).name if is_own else name] = blake2b(content, digest_size=4).hexdigest()
    return digest.hexdigest(), files


def _sources(folder: Path) -> list[Path]:
    found: list[Path] = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _UNREAD_FOLDERS]
        found += [Path(place) / name for name in files if name.endswith(".py")]
    return sorted(found)


def _digest_of(paths: Iterable[Path]) -> str:
    digest = blake2b(digest_size=16)
    for path in paths:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()


def _prompt_digest(prompt: str) -> str:
    from nemo_gym.config.roots import resolve_under_roots

    with suppress(OSError):
        return f"{Path(prompt).name} {_digest_of([resolve_under_roots(prompt)])[:16]}"
    return Path(prompt).name


def _skills_digest(path: str) -> str:
    from nemo_gym.rollouts.skills import load_skill_directory

    with suppress(ValueError, OSError):
        return str(load_skill_directory(path).hash)
    return Path(path).name
