"""The examples of docs/submit.md are configs that are taken."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.unit.orchestration.conftest import ROOT, Site

EXAMPLES = re.findall(r"^```yaml[^\n]*\n(.*?)^```", (ROOT / "docs" / "submit.md").read_text(), re.DOTALL | re.MULTILINE)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 2


@pytest.mark.parametrize("text", EXAMPLES, ids=["slurm", "local"])
def test_an_example_is_taken(site: Site, text: str) -> None:
    path = site.folder / "submit.yaml"
    path.write_text(text)
    resolved = site.gym("eval", "submit", "--config", str(path), "--resolve-only")
    assert resolved.code == 0 and "driver:" in resolved.out, resolved.err
    rendered = site.gym("eval", "submit", "--config", str(path), "--dry-run", HF_TOKEN="hf_x")
    assert rendered.code == 0 and rendered.err == "", rendered.err
    assert "gym eval run" in rendered.out
    for config in re.findall(r"config_paths: \[(.*?)\]", text):
        assert Path(ROOT, config).is_file()
    scripts = re.split(r"^=== ", rendered.out, flags=re.MULTILINE)[2:]
    for script in (part.partition("\n")[2] for part in scripts if part.partition("\n")[0].endswith("job.sh")):
        assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
