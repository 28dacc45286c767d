"""What is wrong with a composed config, found all at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic_core import ErrorDetails

from nemo_gym.config.agent_composition import allowed_names, pairing_is_unchecked
from nemo_gym.config.entries import implementation_blocks, reference_name
from nemo_gym.config.errors import (
    AlmostServerError,
    ConfigError,
    ConfigMissingValuesError,
    ServerRefNotFoundError,
    UnsupportedModelPairingError,
)
from nemo_gym.config.instances import maybe_get_server_instance_config
from nemo_gym.config.interpolations import interpolation_error
from nemo_gym.config.keys import (
    DUMMY_MODEL,
    ERROR_ON_ALMOST_SERVERS_KEY_NAME,
    MISSING,
    RESOURCES_SERVERS,
    RESPONSES_API_AGENTS,
    RESPONSES_API_MODELS,
    SERVER_TYPES,
)
from nemo_gym.config.notices import warn
from nemo_gym.config.origins import Origins, dotted
from nemo_gym.config.references import ServerRef, references_in

Path = tuple[Any, ...]


def missing_value_paths(value: object, prefix: Path = ()) -> Iterator[Path]:
    """Where `???` still stands, in mappings and lists."""
    if value == MISSING:
        yield prefix
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from missing_value_paths(item, (*prefix, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from missing_value_paths(item, (*prefix, index))


def missing_values(config: Mapping[str, Any], origins: Origins) -> list[ConfigError]:
    """One error that lists every value still to be given, or nothing."""
    paths = list(missing_value_paths(config))
    if not paths:
        return []
    listed = ", ".join(f"{dotted(path)}{_by(origins, path)}" for path in paths)
    examples = [f"++{dotted(path)}=<value>" for path in paths if not any(isinstance(key, int) for key in path)]
    advice = f"For example: {' '.join(examples[:3])}" if examples else "Give the whole list in a config file."
    return [ConfigMissingValuesError(f"These values must be given: {listed}. {advice}")]


def dangling_references(config: Mapping[str, Any], origins: Origins) -> list[ConfigError]:
    """An error per field of a server's block that refers to an instance the config doesn't define.

    References deeper in the block, which only the server itself can judge, are warned about.
    """
    known = {server_type: _instances_of(config, server_type) for server_type in SERVER_TYPES}
    problems: list[ConfigError] = []
    for server_type in SERVER_TYPES:
        for name, kind, block in implementation_blocks(config, server_type):
            for path, reference in references_in(block):
                if reference.name in known[reference.type] or reference.name == MISSING:
                    continue
                problem = _dangling((name, server_type, kind, *path), reference, known[reference.type], origins)
                if len(path) == 1:
                    problems.append(problem)
                else:
                    warn(str(problem))
    return problems


def almost_servers(config: DictConfig, origins: Origins) -> list[ConfigError]:
    """An error per entry that is meant to be a server and fails its checks.

    With `error_on_almost_servers: false` they are warned about and left out instead.
    """
    lines = [line for name in _meant_as_servers(config) for line in _validation_lines(name, config[name], origins)]
    if config.get(ERROR_ON_ALMOST_SERVERS_KEY_NAME) is False:
        for line in lines:
            warn(f"{line} (the server is left out)")
        return []
    bypass = f"mend it, or set {ERROR_ON_ALMOST_SERVERS_KEY_NAME}=false to run without this server"
    return [AlmostServerError(f"{line}: {bypass}.") for line in lines]


def model_pairings(config: Mapping[str, Any]) -> list[ConfigError]:
    """An error per agent whose model server is of a kind its resources server doesn't allow."""
    if pairing_is_unchecked(config):
        return []
    resources = {name: block for name, _, block in implementation_blocks(config, RESOURCES_SERVERS)}
    kinds = {name: kind for name, kind, _ in implementation_blocks(config, RESPONSES_API_MODELS)}
    problems: list[ConfigError] = []
    for agent, _, block in implementation_blocks(config, RESPONSES_API_AGENTS):
        owner = reference_name(block, "resources_server")
        kind = kinds.get(reference_name(block, "model_server") or "")
        try:
            allowed = allowed_names(resources.get(owner or "", {}), "allowed_model_types", owner or "")
        except ConfigError as error:
            problems.append(error)
            continue
        if allowed and kind is not None and kind not in (DUMMY_MODEL, *allowed):
            problems.append(
                UnsupportedModelPairingError(
                    f"`{owner}` can't be used with the model server `{kind}` that `{agent}` calls: "
                    f"use --model-type {' or '.join(allowed)}, or pass --allow-unsupported-pairing."
                )
            )
    return problems


def _by(origins: Origins, path: Path) -> str:
    origin = origins.of(path)
    return f" ({origin})" if origin else ""


def _instances_of(config: Mapping[str, Any], server_type: str) -> list[str]:
    return [name for name, _, _ in implementation_blocks(config, server_type)]


def _dangling(path: Path, reference: ServerRef, known: list[str], origins: Origins) -> ConfigError:
    close = get_close_matches(reference.name, known, n=3, cutoff=0.6)
    if close:
        advice = f"Did you mean {' or '.join(f'`{match}`' for match in close)}?"
    elif known:
        advice = f"The {reference.type} there are: {', '.join(known)}."
    else:
        advice = f"There are no {reference.type}: {_HOW_TO_ADD.get(reference.type, 'add a config that defines one')}."
    return ServerRefNotFoundError(
        f"{dotted(path)}{_by(origins, path)} refers to {reference.type} `{reference.name}`, "
        f"which the config doesn't define. {advice}"
    )


_HOW_TO_ADD = {
    RESPONSES_API_MODELS: "add one with --model-type, for example --model-type openai_model",
    RESOURCES_SERVERS: "add one with --resources-server",
    RESPONSES_API_AGENTS: "add one with --agent-type",
}


def _meant_as_servers(config: DictConfig) -> list[str]:
    plain = cast(dict[str, Any], OmegaConf.to_container(config, resolve=False))
    return list(dict.fromkeys(name for name, _, block in implementation_blocks(plain) if "entrypoint" in block))


def _validation_lines(name: str, entry: object, origins: Origins) -> list[str]:
    """One line per place that is wrong; several alternatives for one place are one line."""
    try:
        error = maybe_get_server_instance_config(name, entry)[1]
    except OmegaConfBaseException as unresolved:
        return [str(interpolation_error(unresolved)).rstrip(".")]
    said: dict[Path, list[str]] = {}
    for item in error.errors(include_url=False) if error else ():
        path = tuple(key for index, key in enumerate(item["loc"]) if not _is_union_tag(item["loc"], index))
        said.setdefault(path, []).append(_said(item))
    return [
        f"{dotted((name, *path))}{_by(origins, (name, *path))} {'; '.join(dict.fromkeys(messages))}"
        for path, messages in said.items()
    ]


def _is_union_tag(location: tuple[int | str, ...], index: int) -> bool:
    """Pydantic names the member of the union it tried: `datasets.0.train.license`."""
    return index > 1 and location[index - 2] == "datasets" and isinstance(location[index - 1], int)


def _said(item: ErrorDetails) -> str:
    context = item.get("ctx", {})
    match item["type"]:
        case "missing":
            return "is missing"
        case "literal_error" | "enum":
            return f"must be one of {context['expected']}, not {item['input']!r}"
        case "union_tag_invalid":
            return f"has a type {context['tag']!r}, which must be one of {context['expected_tags']}"
        case "union_tag_not_found":
            return "has no type"
        case "too_long" | "too_short":
            return "must hold exactly one implementation"
    return f"is wrong: {item['msg'].removeprefix('Value error, ')}"
