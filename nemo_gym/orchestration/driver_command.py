"""What the driver step does: install Gym where asked, prepare the data, run the benchmark."""

import shlex
from urllib.parse import unquote, urlsplit, urlunsplit

from nemo_gym.orchestration.api import Benchmark, GymInstall, SubmitConfig
from nemo_gym.orchestration.arguments import Arguments
from nemo_gym.orchestration.deployment import policy_of

POLICY_KEY = "NEMO_GYM_POLICY_API_KEY"


def driver_command(config: SubmitConfig, name: str, folder: str) -> tuple[str, dict[str, str]]:
    """Shell text for a benchmark whose job has this folder, and the secret values it reads from variables."""
    benchmark, driver = config.driver.benchmarks[name], config.driver
    arguments = Arguments(f"driver.benchmarks.{name}")
    lines = ["set -euo pipefail"]
    credentials: dict[str, str] = {}
    if driver.gym_install is not None:
        with_telemetry = config.otel.is_on and config.otel.gym_telemetry
        text, credentials = _install(driver.gym_install, with_telemetry=with_telemetry)
        lines.append(text)
    if benchmark.prepare:
        lines.append(shlex.join(["gym", "eval", "prepare", *arguments.tokens(benchmark.prepare)]))
    if benchmark.command is not None:
        lines.append(benchmark.command.strip())
    else:
        run = shlex.join(["gym", "eval", "run", *_run_words(config, benchmark, folder, arguments)])
        lines.append(run if driver.gym_install else f"exec {run}")
    return "\n".join(lines), {**arguments.secrets, **credentials}


def policy_variables(config: SubmitConfig, name: str, folder: str) -> dict[str, str]:
    """What a benchmark's own `command` is told by variables; nothing for `gym eval run`, which is told by arguments."""
    if config.driver.benchmarks[name].command is None:
        return {}
    variables = {"NEMO_GYM_BENCH_DIR": folder}
    policy = policy_of(config)
    if policy is not None:
        variables["NEMO_GYM_POLICY_BASE_URL"] = policy.base_url
        variables["NEMO_GYM_POLICY_MODEL_NAME"] = policy.model_name
        if not policy.has_key:
            variables[POLICY_KEY] = policy.api_key
    return variables


def key_variables(config: SubmitConfig) -> dict[str, str]:
    """The policy's key as a prefixed value of a variable, where its server asks for one."""
    policy = policy_of(config)
    return {POLICY_KEY: policy.api_key} if policy is not None and policy.has_key else {}


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
        words.append(f"+policy_api_key={'${oc.env:' + POLICY_KEY + '}' if policy.has_key else policy.api_key}")
    return words + arguments.tokens({**defaults, **benchmark.run})


def _split(install: GymInstall) -> tuple[str, str, dict[str, str]]:
    """The repository without `user:password@`, options by which git gets both, and the variables they are in.

    Arguments of a process are for all to see, so they name the variables.
    """
    parts = urlsplit(install.repo)
    userinfo, at, host = parts.netloc.rpartition("@")
    if parts.scheme not in ("http", "https") or not at:
        return install.repo, "", {}
    user, _, password = userinfo.partition(":")
    variables = {"GYM_REPO_USER": unquote(user), "GYM_REPO_PASSWORD": unquote(password)}
    said = " ".join(f'"${name}"' for name in variables)
    helper = f"credential.{parts.scheme}://{host}.helper=!f() {{ printf 'username=%s\\npassword=%s\\n' {said}; }}; f"
    return urlunsplit(parts._replace(netloc=host)), f"-c {shlex.quote(helper)} ", variables


def _install(install: GymInstall, *, with_telemetry: bool) -> tuple[str, dict[str, str]]:
    """A venv of its own with Gym at a commit, branch or tag, and the variables that its shell text reads.

    No script from the network is run by a shell.
    """
    extra = "[telemetry]" if with_telemetry else ""
    repo, options, variables = _split(install)
    forget = f"\nunset {' '.join(variables)}" if variables else ""
    text = f"""gym_source="$(mktemp -d)"
trap 'rm -rf "$gym_source"' EXIT
trap : TERM INT  # what runs is told too, and its exit code is ours
for program in git python3; do
  command -v "$program" >/dev/null || {{ echo "gym_install needs $program in the driver's container." >&2; exit 1; }}
done
git {options}clone --quiet {shlex.quote(repo)} "$gym_source/gym"{forget}
git -C "$gym_source/gym" checkout --quiet {shlex.quote(install.ref)}
if ! command -v uv >/dev/null; then
  python3 -m venv "$gym_source/uv" && "$gym_source/uv/bin/pip" install --quiet uv
  export PATH="$gym_source/uv/bin:$PATH"
fi
uv venv --quiet "$gym_source/venv"
export VIRTUAL_ENV="$gym_source/venv" PATH="$gym_source/venv/bin:$PATH"
(cd "$gym_source/gym" && uv pip install --quiet -e ".{extra}")"""
    return text, variables
