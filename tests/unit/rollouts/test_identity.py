"""What a run is a run of, and who may go on with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from nemo_gym.rollouts import identity as identities
from nemo_gym.rollouts.errors import ResumeRefusedError
from nemo_gym.rollouts.identity import Identity, differences, listed, servers_identity
from nemo_gym.rollouts.journal import read_journal
from tests.unit.rollouts.fakes import FakeClient, Row, collect, collection_config, right, served, task, write_jsonl


def numbered(count: int) -> list[Row]:
    return [task(f"q{number}", number=number) for number in range(count)]


def with_model(**block: Any) -> DictConfig:
    fields = {"entrypoint": "app.py", "host": "127.0.0.1", "port": 1, "openai_model": "m-1", **block}
    return served(policy_model={"responses_api_models": {"openai_model": fields}}, policy_api_key="sk-secret-1")


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return differences(servers_identity(with_model(**before)), servers_identity(with_model(**after)))


MODEL = "policy_model.responses_api_models.openai_model"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"port": 1}, {"port": 2}),
        ({"host": "a"}, {"host": "b"}),
        ({"openai_base_url": "http://127.0.0.1:1/v1"}, {"openai_base_url": "http://node7:8000/v1/"}),
        ({"openai_base_url": ["http://n1:1/v1", "http://n2:1/v1"]}, {"openai_base_url": "http://n3:9/v1"}),
        ({"num_workers": 1}, {"num_workers": 8}),
        ({"max_concurrent_requests": 4}, {"max_concurrent_requests": 5}),
        ({"store": "/tmp/a/weights"}, {"store": "/scratch/b/weights"}),
        ({"openai_api_key": "sk-a-long-one"}, {"openai_api_key": "sk-another-one"}),
        ({"openai_api_key": "one"}, {"openai_api_key": "two"}),
        ({"headers": {"X-Trace": "1"}}, {"headers": {"X-Trace": "2"}}),
        ({"openai_base_url": "http://me:pass-one@h/v1"}, {"openai_base_url": "http://me:pass-two@h/v1"}),
        ({"datasets": [{"name": "a"}]}, {"datasets": []}),
    ],
)
def test_ports_places_widths_and_keys_are_no_difference(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert changes(before, after) == []


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"openai_model": "m-1"}, {"openai_model": "m-2"}, "openai_model: m-1 → m-2"),
        ({}, {"extra": {"a": 1}}, "extra.a: unset → 1"),
        ({"flag": True}, {}, "flag: true → unset"),
        (
            {"openai_base_url": "https://api.one.com/v1"},
            {"openai_base_url": "https://api.two.com/v1"},
            "openai_base_url: https://api.one.com/v1 → https://api.two.com/v1",
        ),
        (
            {"openai_base_url": "http://127.0.0.1:1/v1"},
            {"openai_base_url": "https://api.two.com/v1"},
            "openai_base_url: http://*/v1 → https://api.two.com/v1",
        ),
        ({"weights": "/a/one"}, {"weights": "/a/two"}, "weights: …/one → …/two"),
        ({"stop": ["a", "b"]}, {"stop": ["a"]}, 'stop: ["a","b"] → ["a"]'),
    ],
)
def test_what_decides_the_records_is_a_difference(before: dict[str, Any], after: dict[str, Any], told: str) -> None:
    assert changes(before, after) == [f"{MODEL}.{told}"]


def test_secrets_are_no_part_of_it_even_inside_other_values() -> None:
    config = with_model(
        openai_api_key="${policy_api_key}", note="use sk-secret-1 here", nested=[{"token": "t0ps3cret"}]
    )
    text = json.dumps(servers_identity(config).as_entry())
    assert "sk-secret-1" not in text and "t0ps3cret" not in text and "use **** here" in text


def test_the_code_of_components_is_their_python_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "resources_servers" / "math"
    for name in ("app.py", "more/parts.py", "tests/test_app.py", ".venv/lib.py", "data/rows.jsonl"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("1")
    (folder / "requirements.txt").write_text("-e nemo-gym\n")
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path))
    before = servers_identity(served())
    for name in ("tests/test_app.py", ".venv/lib.py", "data/rows.jsonl"):
        (folder / name).write_text("2")
    assert servers_identity(served()).code == before.code
    (folder / "more" / "parts.py").write_text("2")
    (folder / "new.py").write_text("1")
    now = servers_identity(served())
    assert differences(before, now) == ["code of resources_servers/math: more/parts.py has changed, new.py is new"]
    assert differences(now, before) == ["code of resources_servers/math: more/parts.py has changed, new.py is gone"]
    told = before.as_entry()
    del told["files"]  # as in a journal of an earlier version
    (line,) = differences(Identity.of_entry(told), now)
    assert line == f"code of resources_servers/math: {before.code['resources_servers/math']} → " + str(
        now.code["resources_servers/math"]
    )
    monkeypatch.setattr(identities, "__version__", "9.9")
    assert any(told.endswith("→ 9.9") for told in differences(before, servers_identity(served())))
    monkeypatch.delenv("NEMO_GYM_EXTRA_ROOTS")
    assert not any("math" in told for told in differences(before, servers_identity(served()))), "not installed here"


def test_long_lists_are_cut() -> None:
    assert listed([str(number) for number in range(10)]).splitlines()[-1] == "  and 2 more"
    assert listed(["a"]) == "  a"


async def first_run(tmp_path: Path, **fields: Any) -> None:
    await collect(collection_config(tmp_path, numbered(3), agent_name="math_agent", **fields), right, with_model())
    path = tmp_path / "out.jsonl"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])


async def resume(tmp_path: Path, config: DictConfig | None = None, **fields: Any) -> FakeClient:
    values = {"resume_from_cache": True, **fields}
    return await collect(collection_config(tmp_path, [], **values), right, with_model() if config is None else config)


async def test_a_run_of_something_else_is_refused_with_both_ways_out(tmp_path: Path) -> None:
    """B54, B58: results are never mixed without a word."""
    await first_run(tmp_path)
    before = (tmp_path / "out.jsonl").read_bytes(), (tmp_path / "out.jsonl.journal").read_bytes()
    with pytest.raises(ResumeRefusedError) as raised:
        await resume(tmp_path, with_model(openai_model="m-2"), num_repeats=4, responses_create_params={"top_p": 1})
    text = str(raised.value)
    assert raised.value.exit_code == 1
    for told in (
        f"  {MODEL}.openai_model: m-1 → m-2",
        "  num_repeats: 1 → 4",
        '  responses_create_params: {} → {"top_p":1}',
        "--resume-anyway",
        "--overwrite",
    ):
        assert told in text
    assert ((tmp_path / "out.jsonl").read_bytes(), (tmp_path / "out.jsonl.journal").read_bytes()) == before


async def test_other_rows_are_refused(tmp_path: Path) -> None:
    await first_run(tmp_path)
    moved = tmp_path / "elsewhere" / "rows.jsonl"
    moved.parent.mkdir()
    (tmp_path / "input.jsonl").rename(moved)
    other = write_jsonl(tmp_path / "other.jsonl", numbered(2))
    with pytest.raises(ResumeRefusedError, match=r"input: input\.jsonl → other\.jsonl"):
        await resume(tmp_path, input_jsonl_fpath=str(other))
    assert len((await resume(tmp_path, input_jsonl_fpath=str(moved))).runs) == 2, "the same rows elsewhere"


async def test_what_a_resumption_says_nothing_about_comes_from_the_plan(tmp_path: Path) -> None:
    await first_run(tmp_path, num_repeats=2, limit=2)
    assert len((await resume(tmp_path)).runs) == 3


async def test_going_on_anyway_is_on_record_until_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await first_run(tmp_path)
    other = with_model(openai_model="m-2")
    client = await resume(tmp_path, other, resume_anyway=True)
    assert len(client.runs) == 2
    difference = f"{MODEL}.openai_model: m-1 → m-2"
    assert difference in capsys.readouterr().err
    runs = [entry for entry in read_journal(tmp_path / "out.jsonl.journal") if entry["kind"] == "run"]
    assert [entry.get("resumed_anyway") for entry in runs] == [None, [difference]]
    assert json.loads((tmp_path / "out_coverage.json").read_text())["resumed_anyway"] == [difference]
    await resume(tmp_path, other)
    assert json.loads((tmp_path / "out_coverage.json").read_text())["resumed_anyway"] == [difference]
    with pytest.raises(ResumeRefusedError, match="m-2 → m-1"):
        await resume(tmp_path)


async def test_the_plan_stays_that_of_the_first_run(tmp_path: Path) -> None:
    await first_run(tmp_path)
    other = str(write_jsonl(tmp_path / "other.jsonl", numbered(2)))
    for _ in range(2):
        await resume(tmp_path, resume_anyway=True, num_repeats=4, input_jsonl_fpath=other)
        with pytest.raises(ResumeRefusedError, match="num_repeats: 1 → 4"):
            await resume(tmp_path, num_repeats=4)
        with pytest.raises(ResumeRefusedError, match=r"input\.jsonl → other\.jsonl"):
            await resume(tmp_path, input_jsonl_fpath=other)
    await resume(tmp_path, num_repeats=1)


async def test_resuming_anyway_is_resuming(tmp_path: Path) -> None:
    await first_run(tmp_path)
    assert len((await resume(tmp_path, resume_from_cache=False, resume_anyway=True)).runs) == 2


async def test_a_set_that_does_not_say_what_it_is_is_taken_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """B58: results of NeMo Gym 0.7."""
    await first_run(tmp_path)
    (tmp_path / "out.jsonl.journal").unlink()
    assert len((await resume(tmp_path, with_model(openai_model="m-2"))).runs) == 2
    assert "doesn't say how" in capsys.readouterr().err


def test_an_entry_without_parts_differs_from_nothing() -> None:
    assert differences(Identity.of_entry({"config": None}), servers_identity(with_model())) == []
