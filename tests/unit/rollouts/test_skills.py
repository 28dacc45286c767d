from pathlib import Path

import pytest

from nemo_gym.skills import load_skill_directory, stage_skills
from tests.unit.rollouts.fakes import collect, collection_config, read_jsonl, task


def skill(root: Path, folder: str, text: str) -> None:
    (root / folder).mkdir(parents=True, exist_ok=True)
    (root / folder / "SKILL.md").write_text(text, encoding="utf-8")


def test_skills_are_described_by_their_front_matter_and_hashed_by_their_content(tmp_path: Path) -> None:
    skill(tmp_path, "b", "\ufeff---\nname: beta\nmetadata:\n  version: 1.5\n---\ntext")
    skill(tmp_path, "a", "---\nname: alpha\ndescription: does things\n---\n")
    reference = load_skill_directory(str(tmp_path))
    assert reference.model_dump()["skills"] == [
        {"name": "alpha", "description": "does things", "version": None},
        {"name": "beta", "description": None, "version": "1.5"},
    ]
    assert (reference.path, len(reference.hash)) == (str(tmp_path), 12)
    assert load_skill_directory(str(tmp_path)).hash == reference.hash
    (tmp_path / "a" / "extra.txt").write_text("x")
    assert load_skill_directory(str(tmp_path)).hash != reference.hash


def test_the_hash_is_that_of_paths_and_bytes(tmp_path: Path) -> None:
    import hashlib

    skill(tmp_path, "a", "---\nname: a\n---\n")
    expected = hashlib.sha256(b"a/SKILL.md\0---\nname: a\n---\n\0").hexdigest()[:12]
    assert load_skill_directory(str(tmp_path)).hash == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no front matter", "must begin with front matter"),
        ("---\nname: a\n", "is not closed"),
        ("---\nname: [a\n---\n", "is not valid YAML"),
        ("---\njust text\n---\n", "must be a mapping"),
        ("---\ndescription: x\n---\n", "has no `name`"),
    ],
)
def test_bad_front_matter_names_the_file(tmp_path: Path, text: str, message: str) -> None:
    skill(tmp_path, "a", text)
    with pytest.raises(ValueError, match=message) as raised:
        load_skill_directory(str(tmp_path))
    assert str(tmp_path / "a" / "SKILL.md") in str(raised.value)


def test_bad_folders_are_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        load_skill_directory(str(tmp_path / "none"))
    with pytest.raises(ValueError, match="has no skills"):
        load_skill_directory(str(tmp_path))
    (tmp_path / "a").mkdir()
    with pytest.raises(ValueError, match=r"SKILL\.md is missing"):
        load_skill_directory(str(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is not a folder"):
        load_skill_directory(str(tmp_path / "file"))


def test_staging_copies_to_a_place_that_is_free(tmp_path: Path) -> None:
    skill(tmp_path / "skills", "a", "---\nname: a\n---\n")
    stage_skills(str(tmp_path / "skills"), tmp_path / "staged")
    assert (tmp_path / "staged" / "a" / "SKILL.md").exists()
    with pytest.raises(FileExistsError):
        stage_skills(str(tmp_path / "skills"), tmp_path / "staged")


async def test_a_run_notes_its_skills_on_rows_and_records(tmp_path: Path) -> None:
    skill(tmp_path / "skills", "a", "---\nname: a\n---\n")
    config = collection_config(
        tmp_path, [task("q")], agent_name="math_agent", skills={"path": str(tmp_path / "skills")}
    )
    client = await collect(config)
    assert client.runs[0]["skills_ref"]["skills"] == [{"name": "a", "description": None, "version": None}]
    assert read_jsonl(tmp_path / "out.jsonl")[0]["skills_ref"] == client.runs[0]["skills_ref"]
    broken = collection_config(tmp_path, [task("q")], skills={"path": str(tmp_path / "none")})
    with pytest.raises(ValueError, match="does not exist"):
        await collect(broken)
