"""What no linter knows: secrets, links and claims of this repository."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
KEY_LIKE = re.compile(r"(sk-[A-Za-z0-9_-]{16,}|nvapi-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{20,}|[A-Fa-f0-9]{32,})")
REGISTRY = re.compile(
    r"https?://[^\s'\"]*(?:pypi|pythonhosted|registry\.npmjs|jfrog|artifactory)[^\s'\"]*", re.IGNORECASE
)


def tracked(pattern: str) -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", pattern], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [path for name in listing.stdout.splitlines() if (path := ROOT / name).is_file()]


def literal_values(env_yaml: Path) -> list[str]:
    """Settings of env.yaml that are neither comments nor `${oc.env:…}` references."""
    lines = [
        line
        for line in env_yaml.read_text(encoding="utf-8").splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]
    return [
        line
        for line in lines
        if ":" in line and "${oc.env:" not in line and not re.search(r":\s*(true|false|\d+)?\s*$", line)
    ]


def broken_links(page: Path) -> list[str]:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [
        target
        for target in LINK.findall(text)
        if "://" not in target and not target.startswith("mailto:") and not (page.parent / target).exists()
    ]


def problems() -> list[str]:
    found: list[str] = []
    for env_yaml in tracked("env.yaml"):
        found += [
            f"{env_yaml.name}: a value that is not a variable reference: {line.strip()}"
            for line in literal_values(env_yaml)
        ]
    for page in tracked("*.md"):
        found += [f"{page.relative_to(ROOT)}: link to nothing: {target}" for target in broken_links(page)]
    for path in tracked("*"):
        if path.name == "uv.lock" or path.suffix in {".png", ".jsonl"}:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        name = path.relative_to(ROOT)
        if path.suffix in {".yaml", ".yml", ".toml", ".cfg"}:
            found += [f"{name}: looks like a key: {hit[:6]}…" for hit in KEY_LIKE.findall(text)]
        if path != Path(__file__):
            found += [f"{name}: address of a package registry: {hit}" for hit in REGISTRY.findall(text)]
    return found


if __name__ == "__main__":
    found = problems()
    print("\n".join(found) or "repository checks passed")
    sys.exit(bool(found))
