"""What commands take from the config."""

from typing import Any

import pytest
from pydantic import Field, ValidationError

from nemo_gym.config_types import (
    BaseNeMoGymCLIConfig,
    DownloadJsonlDatasetHuggingFaceConfig,
    UploadJsonlDatasetHuggingFaceMigrateConfig,
    UploadRolloutsConfigMixin,
)


class Command(UploadRolloutsConfigMixin, BaseNeMoGymCLIConfig):
    """Does something."""

    count: int = Field(description="How often.")
    name: str | None = None


@pytest.mark.parametrize("key", ["h", "help"])
def test_help_lists_the_fields_and_ends_well(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        Command.model_validate({key: True})
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith("Does something.\n")
    assert "+count  int  How often.  [required]" in out
    assert "+name  str | None  [default: None]" in out


def test_help_that_is_off_is_no_help() -> None:
    assert Command.model_validate({"help": False, "count": 1, "unrelated": 2}).count == 1


def test_the_older_name_for_uploading_is_accepted_and_the_newer_wins() -> None:
    with pytest.warns(DeprecationWarning, match="upload_rollouts"):
        assert Command.model_validate({"count": 1, "upload_rollouts_to_wandb": False}).upload_rollouts is False
    with pytest.warns(DeprecationWarning):
        both = {"count": 1, "upload_rollouts_to_wandb": False, "upload_rollouts": True}
        assert Command.model_validate(both).upload_rollouts is True


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({"output_dirpath": "d"}, True),
        ({"output_fpath": "f", "split": "train"}, True),
        ({"output_fpath": "f", "artifact_fpath": "a"}, True),
        ({"output_fpath": "f"}, False),
        ({}, False),
        ({"output_dirpath": "d", "output_fpath": "f", "split": "train"}, False),
        ({"output_fpath": "f", "artifact_fpath": "a", "split": "train"}, False),
    ],
)
def test_what_and_where_to_download(fields: dict[str, Any], fits: bool) -> None:
    if fits:
        DownloadJsonlDatasetHuggingFaceConfig.model_validate({"repo_id": "a/b", **fields})
    else:
        with pytest.raises(ValidationError):
            DownloadJsonlDatasetHuggingFaceConfig.model_validate({"repo_id": "a/b", **fields})


def test_a_migration_decides_itself_about_deleting() -> None:
    with pytest.raises(ValidationError, match="delete_from_gitlab"):
        UploadJsonlDatasetHuggingFaceMigrateConfig.model_validate({"delete_from_gitlab": True})
