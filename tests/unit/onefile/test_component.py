import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from nemo_gym.config.instances import server_instances
from nemo_gym.config.task_data import load_task_data_schema, validate_jsonl_rows
from nemo_gym.environment.errors import ScaffoldConflictError
from nemo_gym.launch.sources import needs_ray, shared_class
from nemo_gym.onefile import component
from nemo_gym.onefile.component import cached_component
from nemo_gym.onefile.errors import EnvironmentFileError
from nemo_gym.onefile.example_rows import component_around, stale_rows
from nemo_gym.onefile.growing import scaffold_from_file
from nemo_gym.onefile.loading import load_environment

SOURCE = '''"""Kept as it is.\tReally."""
from nemo_gym import Environment, call
import prices_of_tests

env = Environment("shop", tasks=[{"question": "Buy 2.", "count": 2}, {"question": "?", "count": 1, "note": "x"}])


@env.tool
def buy(count: int) -> int:
    """Buy bread."""
    return count * prices_of_tests.BREAD


@env.verify
def right(response, task):
    return [c.arguments for c in response.calls] == [{"count": task["count"]}]


@env.reference
def reference(task):
    return [call("buy", count=task["count"])]


def test_price():
    assert buy(2) == 6
'''


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "my_shop.py"
    path.write_text(SOURCE)
    (tmp_path / "prices_of_tests.py").write_text("from tax_of_tests import TAX\n\nBREAD = 3 * TAX\n")
    (tmp_path / "tax_of_tests.py").write_text("TAX = 1\n")
    yield path


def test_a_file_is_a_component_with_three_instances_and_its_rows(file: Path, tmp_path: Path) -> None:
    component = cached_component(file, tmp_path / "cache")
    instances = server_instances(yaml.safe_load(component.config.read_text()))
    assert [(each.name, each.implementation) for each in instances] == [
        ("shop_resources_server", "shop"),
        ("shop_simple_agent", "simple_agent"),
        ("shop_environment_server", "legacy_agent"),
    ]
    assert instances[0].block["source_file"] == str(file)
    (data,) = instances[1].block["datasets"]
    rows = (component.root / data["jsonl_fpath"]).read_text().splitlines()
    assert [json.loads(row)["count"] for row in rows] == [2, 1]
    assert (component.folder / "environment.py").read_text() == SOURCE
    assert (component.folder / "requirements.txt").exists()


def test_each_content_has_a_folder_of_its_own_also_by_what_it_imports(file: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = cached_component(file, cache)
    assert cached_component(file, cache) == first
    file.write_text(SOURCE.replace("Buy bread", "Buy a bread"))
    second = cached_component(file, cache)
    file.with_name("prices_of_tests.py").write_text("BREAD = 4\n")
    third = cached_component(file, cache)
    assert len({first.root, second.root, third.root}) == 3
    assert "Buy bread" in (first.folder / "environment.py").read_text()
    assert not list(cache.glob(".unfinished*"))


def test_it_can_share_a_process_unless_it_imports_from_beside_itself(file: Path, tmp_path: Path) -> None:
    component = cached_component(file, tmp_path / "cache")
    assert shared_class(component.folder, component.folder / "app.py") is None
    assert not needs_ray(component.folder)
    file.write_text(SOURCE.replace("import prices_of_tests\n", "").replace("prices_of_tests.BREAD", "3"))
    component = cached_component(file, tmp_path / "cache")
    assert shared_class(component.folder, component.folder / "app.py") == "ShopResourcesServer"


def test_growing_leaves_the_file_as_it_is_and_twice_is_once(file: Path, tmp_path: Path) -> None:
    made = scaffold_from_file(file, tmp_path)
    folder = tmp_path / "resources_servers" / "shop"
    assert made.asset_dir == folder
    assert (folder / "environment.py").read_bytes() == file.read_bytes()
    assert (folder / "prices_of_tests.py").exists() and (folder / "tax_of_tests.py").exists()
    names = {path.relative_to(folder).as_posix() for path in made.created}
    assert names >= {
        "app.py",
        "task_data.py",
        "configs/shop.yaml",
        "data/example.jsonl",
        "tests/test_app.py",
        "audit.py",
    }
    assert "test_price" in (folder / "tests" / "test_app.py").read_text()
    assert scaffold_from_file(file, tmp_path).created == ()


def test_growing_touches_nothing_that_is_different(file: Path, tmp_path: Path) -> None:
    scaffold_from_file(file, tmp_path)
    file.write_text(SOURCE + "# more\n")
    with pytest.raises(ScaffoldConflictError, match=r"environment\.py exists and is different"):
        scaffold_from_file(file, tmp_path)


def test_rows_that_are_no_longer_the_tasks_are_told_and_written_anew(file: Path, tmp_path: Path) -> None:
    folder = scaffold_from_file(file, tmp_path).asset_dir
    grown = folder / "environment.py"
    assert stale_rows(load_environment(grown), folder) == ""
    grown.write_text(SOURCE.replace('"note": "x"}', '"note": "x"}, {"question": "More?", "count": 3}'))
    (folder / "README.md").write_text("Mine.")
    told = stale_rows(load_environment(grown), folder)
    assert "has 2 rows, there are 3 tasks" in told and f"gym env init --from {grown}" in told
    assert scaffold_from_file(grown).created == (folder / "data" / "example.jsonl",)
    assert stale_rows(load_environment(grown), folder) == "" and (folder / "README.md").read_text() == "Mine."
    grown.write_text(grown.read_text().replace("count: int", "count: float"))
    assert "has 3 rows of its own" in stale_rows(load_environment(grown), folder)
    assert scaffold_from_file(grown).created and not scaffold_from_file(grown).created


def test_tasks_in_a_file_beside_it_come_along(tmp_path: Path) -> None:
    (tmp_path / "few.jsonl").write_text('{"question": "?"}\n')
    path = tmp_path / "small.py"
    path.write_text(
        "from nemo_gym import Environment\nenv = Environment(tasks='few.jsonl')\nenv.verify(lambda response: 0)\n"
    )
    folder = scaffold_from_file(path, tmp_path).asset_dir
    assert load_environment(folder / "environment.py", written_at=None).tasks == [{"question": "?"}]


def test_the_grown_schema_takes_the_rows(file: Path, tmp_path: Path) -> None:
    folder = scaffold_from_file(file, tmp_path).asset_dir
    schema = load_task_data_schema(folder)
    assert schema is not None
    assert schema.json_schema()["required"] == ["question", "count"]
    report = validate_jsonl_rows("shop", schema, "rows", (folder / "data" / "example.jsonl").read_text().splitlines())
    assert (report.rows, report.clean) == (2, True)


def test_another_version_of_gym_has_folders_of_its_own(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = cached_component(file, tmp_path / "cache").root
    monkeypatch.setattr(component, "__version__", "9.9.9")
    assert cached_component(file, tmp_path / "cache").root != before


def test_a_file_called_like_a_module_of_python_is_not_what_is_imported(file: Path) -> None:
    file.write_text(f"import json\n{SOURCE}")
    (file.parent / "json.py").write_text("")
    assert set(map(str, component.copied(file))) == {"environment.py", "prices_of_tests.py", "tax_of_tests.py"}


@pytest.mark.parametrize(("given", "steps"), [("", None), (", max_steps=3", 3)])
def test_the_agent_takes_as_many_steps_as_the_file_says(
    file: Path, tmp_path: Path, given: str, steps: int | None
) -> None:
    file.write_text(SOURCE.replace('"note": "x"}]', f'"note": "x"}}]{given}'))
    config = yaml.safe_load(cached_component(file, tmp_path / "cache").config.read_text())
    assert config["shop_simple_agent"]["responses_api_agents"]["simple_agent"].get("max_steps") == steps


def test_only_the_file_of_its_own_folder_is_refreshed(file: Path, tmp_path: Path) -> None:
    grown = scaffold_from_file(file, tmp_path).asset_dir / "environment.py"
    environment = load_environment(grown)
    assert component_around(grown, environment) == grown.parent
    environment.name = "other"
    assert component_around(grown, environment) is None


def test_what_cannot_be_a_folders_file_is_said(file: Path, tmp_path: Path) -> None:
    file.write_text(SOURCE.replace('"shop"', '"json"'))
    with pytest.raises(EnvironmentFileError, match="can't be called 'json', as a module of Python is"):
        scaffold_from_file(file, tmp_path)
    file.write_bytes(f"# coding: latin-1\n# \xe9\n{SOURCE}".encode("latin-1"))
    with pytest.raises(EnvironmentFileError, match="isn't written in UTF-8"):
        scaffold_from_file(file, tmp_path)
