"""What a component's sources say about how it has to be started."""

from __future__ import annotations

from pathlib import Path

import pytest

from nemo_gym.launch.sources import compat_imports, needs_ray, unconditional_imports


def component(folder: Path, **sources: str) -> Path:
    for name, text in sources.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ({"app": "class A:\n    ray_enabled = True\n"}, True),
        ({"app": "class A:\n    ray_enabled: ClassVar[bool] = True\n"}, True),
        ({"app": "import ray\nclass A:\n    ray_enabled = False\n"}, False),
        ({"app": "class A:\n    pass\n", "helper": "def f():\n    import ray\n"}, True),
        ({"app": "from ray.util import x\n"}, True),
        ({"app": "import rayon\n"}, False),
        ({"app": "x = 1\n", "tests__test_app": "import ray\n"}, False),
        ({"app": "x = 1\n", ".venv__lib__module": "import ray\n"}, False),
    ],
)
def test_who_needs_ray(tmp_path: Path, sources: dict[str, str], expected: bool) -> None:
    assert needs_ray(component(tmp_path, **sources)) is expected


@pytest.mark.parametrize(("value", "brought"), [("true", {"mcp"}), ("false", set())])
def test_tools_over_mcp_need_a_module_nobody_imports(tmp_path: Path, value: str, brought: set[str]) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "a.yaml").write_text(
        f"a:\n  resources_servers:\n    a: {{}}\n    expose_tools_over_mcp: {value}\n"
    )
    assert compat_imports(tmp_path) == brought


def test_modules_only_the_compat_extra_brings(tmp_path: Path) -> None:
    component(
        tmp_path, app="import pandas as pd\nfrom scipy.stats import t\nimport json\n", tests__test_app="import mcp\n"
    )
    assert compat_imports(tmp_path) == {"pandas", "scipy"}


def test_imports_a_file_cannot_do_without(tmp_path: Path) -> None:
    text = (
        "import a.b, c\nfrom d.e import f\nfrom . import g\ntry:\n    import h\nexcept ImportError:\n    h = None\n"
        "if TYPE:\n    import i\ndef j():\n    import k\n"
    )
    component(tmp_path, app=text)
    assert unconditional_imports([tmp_path / "app.py", tmp_path / "missing.py"]) == ["a", "c", "d"]


def test_a_script_counts_only_where_the_server_imports_it(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/prepare.py").write_text("def load():\n    from datasets import load_dataset\n")
    (tmp_path / "tables.py").write_text("import pandas\n")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/deep.py").write_text("import scipy\n")
    serving = "if __name__ == '__main__':\n    Server.run_webserver()\n"
    imports = "from resources_servers.x.inner import (\n    deep,\n)\n"
    (tmp_path / "app.py").write_text(imports + serving)
    assert compat_imports(tmp_path) == {"scipy"}
    (tmp_path / "inner/deep.py").write_text("import scipy\nfrom tables import rows\n")
    assert compat_imports(tmp_path) == {"scipy", "pandas"}
    (tmp_path / "app.py").write_text(imports + "from scripts import prepare\n" + serving)
    assert compat_imports(tmp_path) == {"scipy", "pandas", "datasets"}
