from pathlib import Path

import pytest

from nemo_gym.onefile.errors import EnvironmentFileError
from nemo_gym.onefile.loading import load_environment

HEAD = "from nemo_gym import Environment\nenv = Environment()\n"
VERIFIER = "@env.verify\ndef v(response): return 1\n"


def written(folder: Path, source: str, name: str = "my_env.py") -> Path:
    (folder / name).write_text(source)
    return folder / name


def test_a_file_is_loaded_and_named_after_itself(tmp_path: Path) -> None:
    environment = load_environment(written(tmp_path, HEAD + VERIFIER, "My-Env.py"))
    assert (environment.name, environment.variable) == ("my_env", "env")


def test_the_only_environment_may_be_called_anything(tmp_path: Path) -> None:
    source = (HEAD + VERIFIER).replace("env", "shop").replace("nemo_gym", "nemo_gym")
    assert load_environment(written(tmp_path, source)).variable == "shop"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("x = 1\ndef f(:\n", r"my_env\.py:2: invalid syntax"),
        ("x = 1\n\nimport no_such_module\n", r"my_env\.py:3: there is no module `no_such_module`: install it"),
        ("def f():\n    return {}['k']\nf()\n", r"my_env\.py:2: KeyError: 'k'"),
        ("raise SystemExit('bye')\n", r"my_env\.py:1: SystemExit: bye"),
        ("x = 1\n", r"my_env\.py: it defines no environment"),
        (HEAD, r"my_env\.py:2: the environment has no verifier"),
        (HEAD.replace("env =", "a = b =") + "c = Environment()\n", r"my_env\.py: it defines several environments"),
        (HEAD + "@env.tool\ndef f(x): ...\n", r"my_env\.py:3: the parameter `x` of the tool `f` has no type"),
        (HEAD + "@env.verify\ndef v(row): ...\n", r"my_env\.py:3: the verifier `v` can't have a parameter `row`"),
        (HEAD.replace("()", "('My Env')") + VERIFIER, r"my_env\.py:2: an environment can't be called 'My Env'"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(source: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFileError, match=problem) as caught:
        load_environment(written(tmp_path, source))
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_are_said(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFileError, match=r"nowhere\.py: it can't be read: No such file"):
        load_environment(tmp_path / "nowhere.py")
    with pytest.raises(EnvironmentFileError, match=r"an environment's file is a Python file"):
        load_environment(written(tmp_path, HEAD, "env.yaml"))


def test_a_copy_speaks_of_the_file_it_is_of_and_imports_from_beside_it(tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    original = tmp_path / "origin" / "shop.py"
    original.parent.mkdir()
    (original.parent / "beside_shop.py").write_text("PRICE = 3\n")
    source = HEAD + "import beside_shop\nfrom pathlib import Path\nHERE = Path(__file__)\n" + VERIFIER
    environment = load_environment(written(copies, source, "environment.py"), written_at=original)
    assert environment.name == "shop"
    assert environment.place == f"{original}:2"


def test_of_several_environments_the_one_called_env_is_meant(tmp_path: Path) -> None:
    other = "other = Environment('other')\n"
    environment = load_environment(written(tmp_path, HEAD + VERIFIER + other))
    assert (environment.name, environment.variable) == ("my_env", "env")
