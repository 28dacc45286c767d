"""What the driver step does: install Gym where asked, prepare the data, run the benchmark."""

import shlex

from nemo_gym.orchestration.api import Benchmark, GymInstall, SubmitConfig
from nemo_gym.orchestration.arguments import Arguments
from nemo_gym.orchestration.deployment import policy_of


def driver_command(config: SubmitConfig, name: str, folder: str) -> tuple[str, dict[str, str]]:
    """Shell text for a benchmark whose job has this folder, and the secret values it reads from variables."""
    benchmark, driver = config.driver.benchmarks[name], config.driver
    arguments = Arguments(f"driver.benchmarks.{name}")
    lines = ["set -euo pipefail"]
    if driver.gym_install is not None:
        lines.append(_install(driver.gym_install, with_telemetry=config.otel.is_on and config.otel.gym_telemetry))
    if benchmark.prepare:
        lines.append(shlex.join(["gym", "eval", "prepare", *arguments.tokens(benchmark.prepare)]))
    if benchmark.command is not None:
        lines.append(benchmark.command.strip())
    else:
        run = shlex.join(["gym", "eval", "run", *_run_words(config, benchmark, folder, arguments)])
        lines.append(run if driver.gym_install else f"exec {run}")
    return "\n".join(lines), arguments.secrets


def policy_variables(config: SubmitConfig, name: str, folder: str) -> dict[str, str]:
    """What a benchmark's own `command` is told by variables; nothing for `gym eval run`, which is told by arguments."""
    if config.driver.benchmarks[name].command is None:
        return {}
    variables = {"NEMO_GYM_BENCH_DIR": folder}
    policy = policy_of(config)
    if policy is not None:
        variables["NEMO_GYM_POLICY_BASE_URL"] = policy.base_url
        variables["NEMO_GYM_POLICY_MODEL_NAME"] = policy.model_name
        variables["NEMO_GYM_POLICY_API_KEY"] = policy.api_key
    return variables


def _run_words(config: SubmitConfig, benchmark: Benchmark, folder: str, arguments: Arguments) -> list[str]:
    output = {"output_jsonl_fpath": f"{folder}/artifacts/rollouts.jsonl"}
    defaults = {
        "observability_enabled": True,
        "model_call_capture_dir": f"{folder}/model-calls",
        "require_complete": True,
        **({"resume_from_cache": True} if benchmark.resumable else {}),
    }
    words = arguments.tokens(output if "output_jsonl_fpath" not in benchmark.run else {})
    if config.driver.policy_model_type:
        words += ["--model-type", config.driver.policy_model_type]
    policy = policy_of(config)
    if policy is not None:
        words += arguments.tokens({"policy_base_url": policy.base_url, "policy_model_name": policy.model_name})
        words.append(f"+policy_api_key={policy.api_key}")
    return words + arguments.tokens({**defaults, **benchmark.run})


def _install(install: GymInstall, *, with_telemetry: bool) -> str:
    """A venv of its own with Gym at a commit, branch or tag. No script from the network is run by a shell."""
    extra = "[telemetry]" if with_telemetry else ""
    return f"""gym_source="$(mktemp -d)"
trap 'rm -rf "$gym_source"' EXIT
trap : TERM INT  # what runs is told too, and its exit code is ours
for program in git python3; do
  command -v "$program" >/dev/null || {{ echo "gym_install needs $program in the driver's container." >&2; exit 1; }}
done
git clone --quiet {shlex.quote(install.repo)} "$gym_source/gym"
git -C "$gym_source/gym" checkout --quiet {shlex.quote(install.ref)}
if ! command -v uv >/dev/null; then
  python3 -m venv "$gym_source/uv" && "$gym_source/uv/bin/pip" install --quiet uv
  export PATH="$gym_source/uv/bin:$PATH"
fi
uv venv --quiet "$gym_source/venv"
export VIRTUAL_ENV="$gym_source/venv" PATH="$gym_source/venv/bin:$PATH"
(cd "$gym_source/gym" && uv pip install --quiet -e ".{extra}")"""
