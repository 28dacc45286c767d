"""The `token_id_capture` block."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from nemo_gym.errors import GymError
from nemo_gym.token_id_capture.config import (
    NonGeneratingRequest,
    token_id_capture_config,
    token_id_capture_enabled_for_agent,
)
from nemo_gym.token_id_capture.endpoints import build_endpoints, build_source
from nemo_gym.token_id_capture.lineage import FileLineageStore, InMemoryLineageStore
from nemo_gym.token_id_capture.registry import install_lineage_store, install_token_sink, install_token_source
from nemo_gym.token_id_capture.store import TokenCaptureStore

HERE = __name__


class Sink:
    """A sink that keeps nothing."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.is_closed = False

    async def put(self, entry: Any) -> None: ...

    async def mark_incomplete(self, rollout_id: str, model_call_id: str = "") -> None: ...

    async def close(self) -> None:
        self.is_closed = True


class NoSink:
    """Lacks `mark_incomplete` and `close`."""

    async def put(self, entry: Any) -> None: ...


def _config(**block: Any) -> dict[str, Any]:
    return {"token_id_capture": block}


def test_no_block_and_no_config_mean_off() -> None:
    assert not token_id_capture_config({}).enabled
    assert not token_id_capture_config(None).enabled
    assert not token_id_capture_config(OmegaConf.create({"token_id_capture": None})).enabled


def test_a_composed_config_is_read_with_its_interpolations(tmp_path: Path) -> None:
    config = OmegaConf.create({"where": str(tmp_path), "token_id_capture": {"enabled": True, "dir": "${where}"}})
    assert token_id_capture_config(config).resolved_dir() == tmp_path


def test_the_folder_falls_back_on_that_of_model_call_capture(tmp_path: Path) -> None:
    config = {**_config(enabled=True), "model_call_capture_dir": str(tmp_path)}
    assert token_id_capture_config(config).resolved_dir() == tmp_path
    with pytest.raises(ValueError, match=r"token_id_capture\.dir"):
        build_endpoints(_config(enabled=True))


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"colour": "red"}, r"token_id_capture\.colour"),
        ({"dir": "relative/path"}, "absolute"),
        ({"enabled": True, "sink": "no_colon"}, r"package\.module:Class"),
        ({"enabled": True, "sink": "a.b:C"}, "lineage_store"),
        ({"external_staging": True, "rebuild_response": False}, "enabled"),
        ({"enabled": True, "external_staging": True}, "rebuild_response"),
        ({"max_mask_fraction": 1.5}, "max_mask_fraction"),
        ({"external_staging_backend": "tpu"}, "external_staging_backend"),
    ],
)
def test_what_can_not_be_had_is_told_by_key(block: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        token_id_capture_config(_config(**block))
    assert isinstance(caught.value, GymError)


def test_a_sink_is_built_with_its_arguments() -> None:
    block = {"sink": f"{HERE}:Sink", "sink_kwargs": {"name": "n"}, "allow_unresolved_continuations": True}
    sink = token_id_capture_config(_config(enabled=True, **block)).build_sink()
    assert isinstance(sink, Sink) and sink.name == "n"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no.such.module:Sink", "can't be built"),
        (f"{HERE}:Missing", "can't be built"),
        (f"{HERE}:NoSink", "mark_incomplete, close"),
    ],
)
def test_a_sink_that_is_none_is_refused_at_start(target: str, message: str) -> None:
    config = token_id_capture_config(_config(enabled=True, sink=target, allow_unresolved_continuations=True))
    with pytest.raises(ValueError, match=message):
        config.build_sink()


def test_agents_take_part_by_their_own_flag_or_all_of_them() -> None:
    agents = {name: {"responses_api_agents": {"x": {"token_id_capture": name == "yes"}}} for name in ("yes", "no")}
    config = {**_config(enabled=True), **agents}
    assert token_id_capture_enabled_for_agent(config, "yes")
    assert not token_id_capture_enabled_for_agent(config, "no")
    assert not token_id_capture_enabled_for_agent(config, "missing")
    assert token_id_capture_enabled_for_agent({**config, **_config(enabled=True, all_agents=True)}, "no")
    assert token_id_capture_enabled_for_agent(config, {"token_id_capture": True})
    assert not token_id_capture_enabled_for_agent({**config, **_config(enabled=False, all_agents=True)}, "yes")


def test_non_generating_requests_are_exact() -> None:
    assert NonGeneratingRequest(method="get", path="/tokenize").method == "GET"
    for bad in ({"method": "G T", "path": "/x"}, {"method": "GET", "path": "x"}, {"method": "GET", "path": "/x/{id}"}):
        with pytest.raises(ValueError):
            NonGeneratingRequest.model_validate(bad)


def test_the_default_stores_are_files_in_the_folder(tmp_path: Path) -> None:
    endpoints = build_endpoints(_config(enabled=True, dir=str(tmp_path)), num_workers=4)
    assert endpoints is not None and endpoints.token_store is not None
    assert endpoints.token_store.root == tmp_path
    assert isinstance(endpoints.lineage_store, FileLineageStore)
    assert isinstance(build_source(endpoints.config), TokenCaptureStore)


def test_several_workers_need_a_lineage_store_they_share() -> None:
    block = {
        "enabled": True,
        "sink": f"{HERE}:Sink",
        "lineage_store": "nemo_gym.token_id_capture.lineage:InMemoryLineageStore",
    }
    assert build_endpoints(_config(**block), num_workers=1) is not None
    with pytest.raises(ValueError, match="2 workers"):
        build_endpoints(_config(**block), num_workers=2)


def test_external_staging_needs_a_ledger_that_others_can_read(tmp_path: Path) -> None:
    block: dict[str, Any] = {"enabled": True, "external_staging": True, "rebuild_response": False}
    with pytest.raises(ValueError, match="ledger"):
        build_endpoints(_config(**block))
    with pytest.raises(ValueError, match="ledger"):
        build_endpoints(_config(**block, lineage_store="nemo_gym.token_id_capture.lineage:InMemoryLineageStore"))
    file_store = {"lineage_store": "nemo_gym.token_id_capture:FileLineageStore"}
    endpoints = build_endpoints(_config(**block, **file_store, lineage_store_kwargs={"root": str(tmp_path)}))
    assert endpoints is not None and endpoints.ledger is endpoints.lineage_store
    assert (endpoints.configured_sink, endpoints.token_store) == (None, None)


async def test_what_was_built_is_closed_and_what_was_installed_is_not() -> None:
    installed_sink, installed_lineage = Sink(), InMemoryLineageStore()
    install_token_sink(installed_sink)
    install_lineage_store(installed_lineage)
    try:
        endpoints = build_endpoints(_config(enabled=True, sink=f"{HERE}:Sink", allow_unresolved_continuations=True))
        assert endpoints is not None and isinstance(endpoints.configured_sink, Sink)
        await endpoints.close()
        assert endpoints.configured_sink.is_closed
        assert not installed_sink.is_closed
        assert endpoints.lineage_store is installed_lineage
    finally:
        install_token_sink(None)
        install_lineage_store(None)


def test_a_sink_that_can_not_be_read_back_is_no_source(tmp_path: Path) -> None:
    config = token_id_capture_config(_config(enabled=True, sink=f"{HERE}:Sink", allow_unresolved_continuations=True))
    with pytest.raises(ValueError, match="read back"):
        build_source(config)
    store = TokenCaptureStore(tmp_path)
    install_token_source(store)
    try:
        assert build_source(config) is store
    finally:
        install_token_source(None)
