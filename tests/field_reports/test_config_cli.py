"""What people reported about configs and the command line must not happen here. The docstrings name the reports."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from nemo_gym.config.roots import PARENT_DIR
from nemo_gym.config_types import ConfigError
from nemo_gym.global_config import GlobalConfigDictParser
from tests.ports import free_port
from tests.unit.cli.conftest import Ended, Gym

Write = Callable[[str, str], Path]

SERVER = """
quiz:
  resources_servers:
    quiz:
      entrypoint: app.py
      domain: other
      datasets:
      - {name: shipped, type: TYPE, license: LICENSE, jsonl_fpath: data/rows.jsonl}
"""
AGENT = """
quiz_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: quiz}
      model_server: {type: responses_api_models, name: policy_model}
"""
ROW = '{"responses_create_params": {"input": "1+1"}}'
COLLATE = ("dataset", "collate", "--config", "quiz.yaml", "--mode", "example_validation", "--output-dir", "out")


@pytest.fixture
def write(gym: Gym, tmp_path: Path) -> Write:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    return write


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is started here."""
    monkeypatch.setattr("nemo_gym.launch.fork_server.prestart", lambda: None)
    monkeypatch.setenv("UV_CACHE_DIR", "restored after the test")
    monkeypatch.setenv("UV_LOCK_TIMEOUT", "5")


def server(write: Write, kind: str = "example", license: str = "MIT") -> None:
    write("quiz.yaml", SERVER.replace("TYPE", kind).replace("LICENSE", license) + AGENT)


def one_sentence(ended: Ended) -> str:
    """What a command that failed has said: no traceback, no library's name or site."""
    assert ended.code in (1, 2)
    lines = [line for line in ended.err.splitlines() if not line.startswith(("Note: ", "usage: "))]
    assert lines and lines[0].startswith(("Error: ", "gym "))
    assert not any(word in ended.err for word in ("Traceback", "pydantic", "omegaconf", "hydra", "https://"))
    return "\n".join(lines)


def test_a_path_that_is_not_there(gym: Gym, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B01: a mistyped config path names every place it was looked for, with no library traceback."""
    (tmp_path / "extra").mkdir()
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path / "extra"))
    name = "resources_servers/nope/configs/x.yaml"
    told = one_sentence(gym("env", "start", "--config", name))
    assert name in told
    assert all(str(root / name) in told for root in (tmp_path, tmp_path / "extra", PARENT_DIR))


def test_a_text_where_a_list_belongs_is_taken_as_one_item(gym: Gym, write: Write) -> None:
    """B02: `+config_paths=a.yaml` without brackets is clear enough."""
    write("a.yaml", "from_a: 1")
    ended = gym("env", "resolve", "+config_paths=a.yaml")
    assert ended.code == 0 and yaml.safe_load(ended.out)["from_a"] == 1


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["env", "resolve", "+config_paths={a: 1}"], ["config_paths", "{'a': 1}", "+config_paths=[a.yaml]"]),
        (
            ["eval", "aggregate", "+input_glob=[a]", "--output", "o.jsonl"],
            ["--input-glob", "string", "Example: gym eval aggregate"],
        ),
        (["eval", "run", "--config", "quiz.yaml", "--limit", "[3]"], ["--limit", "integer", "Example: gym eval run"]),
        (["eval", "run", "--config", "quiz.yaml", "--limit", "few"], ["--limit", "'few'", "Example: gym eval run"]),
    ],
)
def test_a_value_of_the_wrong_shape_is_named_with_an_example(
    gym: Gym, write: Write, line: list[str], told: list[str]
) -> None:
    """B02: the key, what was given, and one correct example; no dump of a validation library."""
    server(write)
    text = one_sentence(gym(*line))
    assert all(part in text for part in told)


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("eval run", ["--resources-server"]),
        ("eval aggregate", ["--input-glob", "--output"]),
        ("eval profile", ["--inputs", "--rollouts"]),
        ("dataset collate", ["--output-dir", "--mode"]),
        ("dataset render", ["--input", "--prompt-config", "--output"]),
    ],
)
def test_what_is_missing_is_asked_for_in_the_words_of_the_command_line(
    gym: Gym, command: str, flags: list[str]
) -> None:
    """B04: flags, not internal names, in one line with one example."""
    text = one_sentence(gym(*command.split()))
    assert all(flag in text for flag in flags) and f"Example: gym {command} " in text
    assert "fpath" not in text and "dirpath" not in text and text.count("\n") == 0


@pytest.mark.parametrize("flag", ["--json", "-v", "--verbose", "--help"])
@pytest.mark.parametrize("command", ["env status", "env resolve"])
def test_a_global_flag_means_the_same_before_and_after_the_command(gym: Gym, flag: str, command: str) -> None:
    """B05: never silently ignored: the same effect in both positions, or refused in both."""
    nobody_there = f"+head_server.port={free_port()}"
    before, after = gym(flag, *command.split(), nobody_there), gym(*command.split(), flag, nobody_there)
    assert (before.code, before.out) == (after.code, after.out)
    if flag == "--json":
        assert before.code == (0 if command == "env status" else 2)
        assert command != "env status" or json.loads(before.out) == []


def test_a_flag_of_gym_itself_is_refused_after_a_command(gym: Gym) -> None:
    """B05: `--version` comes before any command, and is not silently ignored behind one."""
    assert gym("--version", "env", "status").code == 0
    assert "unknown flag --version" in one_sentence(gym("env", "status", "--version"))


@pytest.mark.parametrize(
    ("line", "rejected", "home"),
    [
        (["env", "start", "--limit", "3"], "--limit", "`gym eval run`"),
        (["eval", "run", "--detach"], "--detach", "`gym env start`"),
        (["eval", "profile", "--num-repeats", "3"], "--num-repeats", "`gym eval run`"),
    ],
)
def test_a_flag_in_the_wrong_place_is_not_its_own_suggestion(
    gym: Gym, line: list[str], rejected: str, home: str
) -> None:
    """B06: what was typed is never proposed; where it is accepted is said."""
    text = one_sentence(gym(*line))
    assert f"unknown flag {rejected}" in text and home in text and "Did you mean" not in text


def test_a_split_that_is_not_declared_is_refused_before_anything_is_prepared(gym: Gym, write: Write) -> None:
    """B07: the asked split, what there is and whose it is; no banner, no assertion."""
    server(write)
    ended = gym("eval", "run", "--config", "quiz.yaml", "--split", "train", "--output", "r.jsonl")
    text = one_sentence(ended)
    assert "`train`" in text and "shipped (example, declared by quiz)" in text
    assert ended.out == "" and "Assertion" not in ended.err


@pytest.mark.parametrize("files", [["data/rows.jsonl"], []])
def test_a_file_of_rows_needs_no_split(
    gym: Gym, write: Write, files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B07: `--input` alone suffices, whatever the environment declares."""
    server(write, "train")
    write("mine.jsonl", ROW + "\n")
    for name in files:
        write(name, ROW + "\n")
    inputs: list[Any] = []

    class Servers:
        def __init__(self, **options: object) -> None: ...
        def start(self, config: object) -> None: ...
        def poll(self) -> None: ...
        def shutdown(self) -> None: ...

    monkeypatch.setattr("nemo_gym.cli.env.RunHelper", Servers, raising=False)
    monkeypatch.setattr(
        "nemo_gym.rollout_collection.run_collection", lambda config, *_, **__: inputs.append(config.input_jsonl_fpath)
    )
    ended = gym("eval", "run", "--config", "quiz.yaml", "--input", "mine.jsonl", "--output", "r.jsonl")
    assert ended.code == 0, ended.err
    assert [Path(path).name for path in inputs] == ["mine.jsonl"]


ORDER = ["A1", "A", "B2", "B1", "B"]


def test_includes_are_laid_in_post_order(gym: Gym, write: Write) -> None:
    """B10: `[A, B]`, A→A1, B→B1→B2: A1, A, B2, B1, B, the last wins, and dropping the winner lets the next one win."""
    includes = {"A": ["A1"], "B": ["B1"], "B1": ["B2"]}
    for winner in reversed(ORDER):
        settled = ORDER[: ORDER.index(winner) + 1]
        for name in ORDER:
            paths = f"config_paths: [{', '.join(f'{path}.yaml' for path in includes.get(name, []))}]\n"
            write(f"{name}.yaml", paths + (f"who: {name}\n" if name in settled else ""))
        ended = gym("env", "resolve", "--config", "A.yaml", "--config", "B.yaml")
        assert yaml.safe_load(ended.out)["who"] == winner


def test_who_set_a_value_is_told_on_request(gym: Gym, write: Write) -> None:
    """B10: provenance of every value, secrets masked."""
    write("A1.yaml", "who: A1\nfrom_a1: 1")
    write("A.yaml", "config_paths: [A1.yaml]\nwho: A\nmine: {deep: [1]}")
    write("env.yaml", "who: env\npolicy_api_key: sk-canary-1")
    ended = gym("env", "resolve", "--config", "A.yaml", "--origin", "++hf_token=sk-canary-2", "+x=3")
    lines = ended.out.splitlines()
    assert "who: 'env'  # env.yaml" in lines and "from_a1: 1  # A1.yaml" in lines
    assert "mine.deep: [1]  # A.yaml" in lines and "x: 3  # `+x=3` on the command line" in lines
    assert any(line.startswith("port_range_low: 10001  # set by Gym") for line in lines)
    assert "policy_api_key: '****'  # env.yaml" in lines and "canary" not in ended.out + ended.err


def test_keys_of_env_yaml_that_nothing_reads_are_warned_about(gym: Gym, write: Write) -> None:
    """B11: with the name that was probably meant."""
    server(write)
    write("env.yaml", "openai_api_key: k\npolicy_base_url: http://h/v1\n")
    ended = gym("env", "resolve", "--config", "quiz.yaml", "--model-type", "openai_model", "--model", "m")
    told = [line for line in ended.err.splitlines() if "env.yaml" in line]
    assert told[0] == (
        "Warning: `openai_api_key` in env.yaml isn't used by any loaded config. Did you mean `policy_api_key`?"
    )
    assert not any("`policy_base_url` in env.yaml" in line for line in told)


@pytest.mark.parametrize("commented_out", [True, False])
def test_the_shipped_env_yaml_is_quiet(
    gym: Gym, write: Write, commented_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B11: neither as it is nor with its examples put to use."""
    server(write)
    text = (PARENT_DIR / "env.yaml").read_text(encoding="utf-8")
    assert "# policy_api_key: ${oc.env:POLICY_API_KEY}" in text
    write("env.yaml", text if commented_out else text.replace("# policy_", "policy_"))
    for name in ("POLICY_BASE_URL", "POLICY_API_KEY", "POLICY_MODEL_NAME"):
        monkeypatch.setenv(name, "value")
    model = ["--model", "m", "--model-url", "http://h", "--model-api-key", "k"] if commented_out else []
    ended = gym("env", "validate", "--strict", "--config", "quiz.yaml", "--model-type", "openai_model", *model)
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.parametrize("flag", ["--overwrite", "--resume", None])
def test_nothing_is_announced_or_deleted_before_the_inputs_are_checked(
    gym: Gym, write: Write, flag: str | None
) -> None:
    """B15: with results there and a mistyped `--input` only the mistake is told, and the results are kept."""
    server(write)
    results = write("r.jsonl", '{"reward": 1}\n')
    line = ("eval", "run", "--config", "quiz.yaml", "--input", "gone.jsonl", "--output", "r.jsonl")
    ended = gym(*line, *([flag] if flag else []))
    text = one_sentence(ended)
    assert "--input gone.jsonl does not exist" in text
    said = ended.out + "".join(line for line in ended.err.splitlines() if "embedded" not in line)
    assert not any(word in said.lower() for word in ("clear", "delet", "overwr", "moved"))
    assert results.read_text() == '{"reward": 1}\n' and not list(results.parent.glob("r*.1"))


SECRETS = ("password", "secret", "credential", "Authorization", "API_KEY", "hf_TOKEN", "session_cookie")
HARMLESS = ("max_tokens", "tokenizer_path", "keyboard_layout")


def test_ten_keys_a_url_and_a_list(gym: Gym, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """B98: secrets are masked by name and by value wherever they stand, harmless keys stay readable."""
    monkeypatch.setenv("CANARY", "canary-from-the-environment")
    keys = {name: f"canary-{number:02d}-{name}" for number, name in enumerate(SECRETS)}
    config = {
        "probe": {
            **keys,
            **dict.fromkeys(HARMLESS, "plain"),
            "url": "https://user:canary-in-a-url@host/v1",
            "api_keys": ["canary-in-a-list", {"x": {"token": "canary-nested-in-a-list"}}],
            "arguments": ["--api-key", "canary-of-a-flag", "--hf-token=canary-assigned", "OPENAI_API_KEY=canary-env"],
            "by_value": [f"see {keys['password']}!", "canary-in-a-url", "canary-of-a-flag"],
            "referred": "${oc.env:CANARY}",
            "my_token": "${oc.env:CANARY}",
            "default_headers": {"X-Tenant": "canary-tenant"},
        }
    }
    write("probe.yaml", yaml.safe_dump(config))
    ended = gym("env", "resolve", "--config", "probe.yaml", "+other_api_key=canary-on-the-command-line")
    assert ended.code == 0, ended.err
    assert "canary" not in ended.out + ended.err
    shown = yaml.safe_load(ended.out)["probe"]
    assert {name: shown[name] for name in (*SECRETS, *HARMLESS)} == {
        **dict.fromkeys(SECRETS, "****"),
        **dict.fromkeys(HARMLESS, "plain"),
    }
    assert shown["url"] == "https://****@host/v1" and shown["api_keys"] == ["****", {"x": {"token": "****"}}]
    assert shown["arguments"] == ["--api-key", "****", "--hf-token=****", "OPENAI_API_KEY=****"]
    assert shown["by_value"] == ["see ****!", "****", "****"]
    assert shown["referred"] == shown["my_token"] == shown["default_headers"]["X-Tenant"] == "****"


BAD_REFERENCE = """
m: {responses_api_models: {k: {entrypoint: app.py, url: 'http://u:sk-canary-1@h'}}}
x: {resources_servers: {q: {entrypoint: app.py, domain: other, peer: {type: responses_api_models, name: n}}}}
"""


@pytest.mark.parametrize(
    "broken",
    [
        "srv: {resources_servers: {quiz: {entrypoint: app.py, domain: nope, api_key: sk-canary-1}}}",
        "a: ${gone}\nmy_token: sk-canary-1\nx: {y: ???}",
        BAD_REFERENCE,
    ],
)
def test_errors_about_a_config_show_none_of_its_secrets(gym: Gym, write: Write, broken: str) -> None:
    """B98: error messages are dumps too."""
    write("broken.yaml", broken)
    for command in ("resolve", "validate"):
        ended = gym("env", command, "--config", "broken.yaml", "++hf_token=sk-canary-2")
        assert ended.code == 1 and "canary" not in ended.out + ended.err


def test_notes_about_env_yaml_show_none_of_its_secrets(gym: Gym, write: Write) -> None:
    """B98: neither by name, nor a user's password in a URL."""
    write("a.yaml", "x: {api_key: sk-canary-1, url: 'http://u:sk-canary-2@h', l: ['--api-key', sk-canary-5]}")
    write("env.yaml", "x: {api_key: sk-canary-3, url: 'http://u:sk-canary-4@h', l: ['--api-key', sk-canary-6]}")
    ended = gym("env", "resolve", "--config", "a.yaml")
    assert "env.yaml sets x.url over a.yaml" in ended.err and "canary" not in ended.out + ended.err


def test_rows_that_no_server_could_run_are_told_with_reasons(gym: Gym, write: Write) -> None:
    """B120: file and line, the field, what was found, the way out; five are shown and the rest is counted."""
    server(write)
    bad = ['{"messages": []}', *['{"responses_create_params": {"input": 7}}'] * 6]
    write("data/rows.jsonl", "\n".join([*bad, ROW]) + "\n")
    told = gym(*COLLATE).err
    assert "rows.jsonl, line 1: responses_create_params" in told and "`messages`" in told
    assert "rows.jsonl, line 2: responses_create_params.input" in told and "'7'" in told
    assert told.count("rows.jsonl, line") == 5 and "and 2 more" in told


def test_a_wrong_license_is_found_without_starting_anything(gym: Gym, write: Write) -> None:
    """B121: `gym env validate` runs the same checks as a run does."""
    server(write, "train", "Do what you like")
    text = one_sentence(gym("env", "validate", "--config", "quiz.yaml"))
    assert "quiz.resources_servers.quiz.datasets[0].license (quiz.yaml)" in text
    assert "'Do what you like'" in text and "'Apache 2.0'" in text
    assert one_sentence(gym("eval", "run", "--config", "quiz.yaml", "--output", "r.jsonl")) == text


def test_marks_line_ends_and_blank_lines_are_tolerated(gym: Gym, write: Write, tmp_path: Path) -> None:
    """B122: a byte order mark, CRLF and blank lines; the same task twice is two tasks."""
    server(write)
    write("data/rows.jsonl", f"\ufeff{ROW}\r\n\r\n\n{ROW}\n")
    assert gym(*COLLATE).code == 0
    assert len((tmp_path / "out/example.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("bad", [ROW + ",", ROW[:-1] + ",}", "[1]", "{", "null"])
def test_the_first_bad_line_is_named_with_its_number(gym: Gym, write: Write, bad: str) -> None:
    """B122: a precise place, whatever blank lines come before it."""
    server(write)
    write("data/rows.jsonl", f"{ROW}\r\n\r\n{bad}\n")
    ended = gym(*COLLATE)
    assert ended.code == 1 and "Traceback" not in ended.err
    assert "line 3" in ended.err and "rows.jsonl" in ended.err


def test_the_parser_itself_raises_what_the_command_line_tells() -> None:
    """B01, B02: one error of a type that callers can catch."""
    parser = GlobalConfigDictParser()
    for paths, kind in ((["nope.yaml"], FileNotFoundError), ({"a": 1}, ConfigError)):
        initial = OmegaConf.create({"config_paths": paths})
        with pytest.raises(kind, match=r"nope\.yaml|config_paths"):
            parser.parse_no_environment(initial)
