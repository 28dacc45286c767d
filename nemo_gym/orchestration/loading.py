"""From a YAML file and overrides to a checked submit config."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nemo_gym.config.secrets import hide_secrets_in_overrides
from nemo_gym.orchestration.api import COMPUTE_TYPES, SubmitConfig
from nemo_gym.orchestration.errors import SubmitConfigError
from nemo_gym.orchestration.service_models import SERVICE_TYPES

_TAGS = {"services": SERVICE_TYPES, "compute": COMPUTE_TYPES}
_MOST_PROBLEMS = 8


def load_submit_config(path: Path, overrides: Sequence[str] = ()) -> SubmitConfig:
    """Compose `path` with Hydra (its `defaults`, then `overrides`), drop scratch keys and validate what is left.

    Raises SubmitConfigError, one sentence, for everything that is wrong with the file or the overrides.
    """
    return validated(compose(path, overrides), str(path))


def validated(content: dict[str, Any], name: str) -> SubmitConfig:
    """The config that plain data describes. Raises SubmitConfigError naming missing and wrong keys of `name`."""
    try:
        return SubmitConfig.model_validate(content)
    except ValidationError as error:
        raise SubmitConfigError(f"{name}: {_problems(error)}.") from None


def compose(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """The file as plain data, composed and resolved, without its scratch keys. Raises SubmitConfigError."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "doesn't exist"
        raise SubmitConfigError(f"--config {path} {what}: give the path of a submit config.")
    if path.suffix != ".yaml":
        raise SubmitConfigError(f"--config {path} doesn't end in .yaml: rename it.")
    _refuse_scratch(overrides)
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from omegaconf import OmegaConf

    with _as_sentences(path, overrides):
        with initialize_config_dir(config_dir=str(path.resolve().parent), version_base="1.3"):
            composed = hydra_compose(config_name=path.stem, overrides=list(overrides))
        content = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    if not isinstance(content, dict):
        raise SubmitConfigError(f"--config {path} holds no mapping.")
    return {str(key): value for key, value in content.items() if not str(key).startswith("_")}


def _refuse_scratch(overrides: Sequence[str]) -> None:
    for token in overrides:
        if token.startswith(("+_", "++_")):
            shown = hide_secrets_in_overrides([token])[0]
            raise SubmitConfigError(
                f"The override `{shown}` adds to scratch values, which only the file declares: change one that is "
                "there with key=value."
            )


@contextmanager
def _as_sentences(path: Path, overrides: Sequence[str]) -> Iterator[None]:
    import yaml
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    hydra_log = logging.getLogger("hydra")
    before, hydra_log.disabled = hydra_log.disabled, True
    try:
        yield
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise SubmitConfigError(f"{path}{where}: {getattr(error, 'problem', None) or 'is no YAML'}.") from None
    except UnicodeDecodeError:
        raise SubmitConfigError(f"{path} is no text in UTF-8.") from None
    except (HydraException, OmegaConfBaseException) as error:
        raise SubmitConfigError(f"{path} can't be composed: {_reason(error, overrides)}.") from None
    finally:
        hydra_log.disabled = before


def _reason(error: Exception, overrides: Sequence[str]) -> str:
    """The first line of what Hydra says, and of why; values of secret overrides hidden."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    if error.__cause__ is not None and (cause := str(error.__cause__).strip().splitlines()):
        text = f"{text.rstrip('.')} ({cause[0].strip().rstrip('.')})"
    elif any(line.startswith("full_key:") for line in lines):
        text += next(f" (at {line.partition(':')[2].strip()})" for line in lines if line.startswith("full_key:"))
    if "is not in struct" in text:
        text = f"{text.partition(' (')[0]}, which the file doesn't have; write +key=value to add it"
    for token, hidden in zip(overrides, hide_secrets_in_overrides(overrides), strict=True):
        if token != hidden:
            text = text.replace(token.partition("=")[2], hidden.partition("=")[2])
    return text.rstrip(".")


def _problems(error: ValidationError) -> str:
    missing: list[str] = []
    wrong: list[str] = []
    for issue in error.errors(include_url=False, include_context=False):
        key = _dotted(issue["loc"])
        if issue["type"] == "missing":
            missing.append(key)
        elif issue["type"] == "extra_forbidden":
            wrong.append(f"{key} (no such key)")
        elif issue["type"] in ("union_tag_not_found", "union_tag_invalid"):
            wrong.append(f"{key}.type ({_one_of(issue['loc'])})")
        else:
            wrong.append(f"{key} ({_in_a_sentence(issue['msg'])})")
    parts = [f"missing {', '.join(dict.fromkeys(missing))}"] if missing else []
    parts += [f"wrong {', '.join(wrong[:_MOST_PROBLEMS])}"] if wrong else []
    more = len(wrong) - _MOST_PROBLEMS
    return "; ".join(parts) + (f" and {more} more" if more > 0 else "")


def _dotted(loc: tuple[int | str, ...]) -> str:
    """Where it is in the file: without the tags that pydantic adds, and `[key]` for names."""
    parts = [str(part) for part in loc if part != "[key]"]
    if len(parts) > 2 and parts[2] in _TAGS.get(parts[0], ()):
        del parts[2]
    return ".".join(parts) or "the whole file"


def _one_of(loc: tuple[int | str, ...]) -> str:
    return f"must be one of {', '.join(_TAGS.get(str(loc[0]), ()))}"


def _in_a_sentence(message: str) -> str:
    text = message.removeprefix("Value error, ").removeprefix("Assertion failed, ").rstrip(".")
    return text[:1].lower() + text[1:]
