"""What of a benchmark would only be noticed in its job: after the wait for the queue, and for the model."""

from collections.abc import Iterator
from pathlib import Path

from nemo_gym.config.key_checks import misspelled_settings
from nemo_gym.config.origins import Origins
from nemo_gym.config.roots import resolve_under_roots
from nemo_gym.orchestration.api import SubmitConfig


def run_warnings(config: SubmitConfig) -> Iterator[str]:
    """A sentence for each key, config and kind of model that is probably a slip of the pen.

    They are looked for here, and the driver's container may have others; so nothing is said of files where Gym is
    installed in the job.
    """
    has_own_files = config.driver.gym_install is not None
    for name, benchmark in config.driver.benchmarks.items():
        where = f"driver.benchmarks.{name}.run"
        for message in misspelled_settings(benchmark.run, Origins()).values():
            yield f"{where}: {message}"
        if has_own_files or benchmark.command is not None:
            continue
        paths = benchmark.run.get("config_paths") or []
        for path in paths if isinstance(paths, list) else []:
            if isinstance(path, str) and not resolve_under_roots(path).exists():
                yield f"{where}.config_paths names {path}, which isn't here: has the driver's container got it?"
    kind = config.driver.policy_model_type
    if kind and not has_own_files and not _is_model_type(kind):
        yield f"driver.policy_model_type is {kind}, which isn't here: has the driver's container got it?"


def _is_model_type(kind: str) -> bool:
    folder, _, flavour = kind.partition("/")
    return resolve_under_roots(Path("responses_api_models", folder, "configs", f"{flavour or folder}.yaml")).exists()
