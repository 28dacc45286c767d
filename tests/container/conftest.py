import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.container.tree import NOBODY, ContainerPlace, Tree, built, somewhere
from tests.mock_provider import MockProvider, Reply


def _open_python() -> str:
    """An interpreter that other users may run, where there is one that is new enough."""
    found = shutil.which("python3", path="/usr/bin:/bin")
    asked = "import sys; sys.exit(sys.version_info < (3, 11))"
    return found if found and subprocess.run([found, "-c", asked]).returncode == 0 else sys.executable


@pytest.fixture(scope="package")
def tree() -> Iterator[Tree]:
    with built(_open_python()) as made:
        yield made


@pytest.fixture(scope="module")
def provider() -> Iterator[MockProvider]:
    with MockProvider(Reply(text="**Bold** answer")) as mock:
        yield mock


@pytest.fixture(params=["root", "nobody"])
def user(request: pytest.FixtureRequest, tree: Tree) -> int | None:
    """None for the user that runs the tests."""
    if request.param == "root":
        return None
    if os.getuid() != 0:
        pytest.skip("only root can run commands as another user")
    if not str(tree.python.resolve()).startswith("/usr"):
        pytest.skip("there is no Python 3.11 or newer that another user may run")
    return NOBODY


@pytest.fixture
def in_tree(tree: Tree, user: int | None) -> Iterator[ContainerPlace]:
    """The working directory is the source tree, as after `cd /opt/Gym`."""
    with somewhere(tree, tree.source, user) as place:
        yield place


@pytest.fixture
def at_root(tree: Tree, user: int | None) -> Iterator[ContainerPlace]:
    """The working directory is `/`, as in a container that was just started."""
    with somewhere(tree, tree.prefix.__class__("/"), user) as place:
        yield place
