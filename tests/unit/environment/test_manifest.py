"""`manifest.yaml`: what it may say, and how it is read and written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from nemo_gym.environment.errors import ManifestError
from nemo_gym.environment.manifest import (
    EnvironmentManifest,
    dump_manifest,
    load_manifest,
    manifest_json_schema,
    parse_manifest,
    resolve_manifest_config_path,
)
from tests.unit.environment.conftest import MANIFEST, Write

BENCHMARK = {
    **MANIFEST,
    "kind": "benchmark",
    "canonical_split": "test",
    "standard_prompt_config": "p.yaml",
    "datasets": [
        {
            "name": "b",
            "type": "benchmark",
            "jsonl_fpath": "b.jsonl",
            "prepare_script": "p.py",
            "prompt_config": "p.yaml",
        }
    ],
}


def without(fields: dict[str, Any], *names: str, **changed: Any) -> dict[str, Any]:
    return {key: value for key, value in {**fields, **changed}.items() if key not in names}


@pytest.mark.parametrize(
    "fields", [MANIFEST, BENCHMARK, without(MANIFEST, "grading_mode", licensing="MIT OR Apache-2.0")]
)
def test_a_right_manifest_is_read(fields: dict[str, Any]) -> None:
    manifest = parse_manifest(fields)
    assert manifest.experimental and manifest.determinism == "unknown" and manifest.lifecycle == "active"
    assert manifest.datasets[0].num_repeats == 1 and manifest.config_path == "config.yaml"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (without(MANIFEST, verison="1"), "verison: is no field of a manifest. Did you mean `version`?"),
        (without(MANIFEST, "resources_server"), "resources_server: Field required"),
        (without(MANIFEST, name="  "), "name: "),
        (without(MANIFEST, domain="sports"), "domain: "),
        (without(MANIFEST, licensing="do what you like"), "SPDX expression"),
        (without(MANIFEST, authors=[]), "authors: "),
        (without(MANIFEST, authors=["A", "A "]), "must not repeat itself"),
        (without(MANIFEST, reward={"range": [1, 0], "higher_is_better": True}), "lower end first"),
        (without(MANIFEST, reward={"range": [0, float("inf")], "higher_is_better": True}), "reward.range"),
        (without(MANIFEST, datasets=[]), "datasets: "),
        (without(MANIFEST, datasets=MANIFEST["datasets"] * 2), "different names"),  # type: ignore[operator]
        (without(MANIFEST, resources_server=None), "custom-gym-verifier needs resources_server"),
        (without(MANIFEST, "model_server"), "custom-gym-verifier needs model_server"),
        (without(MANIFEST, "model_server", integration_profile="custom-gym-agent-loop"), "needs model_server"),
        (without(MANIFEST, integration_profile="external-rollout-driver"), "needs rollout_driver"),
        (without(MANIFEST, rollout_driver="a.b:c"), "rollout_driver is for external-rollout-driver"),
        (
            without(MANIFEST, integration_profile="external-rollout-driver", rollout_driver="a.b"),
            "package.module:function",
        ),
        (without(BENCHMARK, "canonical_split"), "needs canonical_split"),
        (without(BENCHMARK, "standard_prompt_config"), "needs standard_prompt_config"),
        (without(BENCHMARK, datasets=MANIFEST["datasets"]), "needs a data set of type benchmark"),
        (without(BENCHMARK, prompt_source="prepared"), "prepared prompts have no standard_prompt_config"),
        (without(BENCHMARK, prompt_source="agent"), "only template prompts have a prompt_config"),
        (without(MANIFEST, datasets=[{"name": "b", "type": "benchmark", "jsonl_fpath": "b"}]), "needs prepare_script"),
        (
            without(MANIFEST, adopted_from={"source": "somewhere", "ref": "v1", "reconciled": "2026-01-01"}),
            "git address",
        ),
        (
            without(MANIFEST, adopted_from={"source": "https://x.org/y", "ref": "v 1", "reconciled": "2026-01-01"}),
            "adopted_from.ref",
        ),
    ],
)
def test_a_wrong_manifest_names_the_place(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ManifestError) as raised:
        parse_manifest(fields)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    "source", ["https://github.com/o/n", "git@github.com:o/n.git", "ssh://git@host/o/n", "host.org:path/n"]
)
def test_where_an_environment_comes_from_may_be_a_url_or_a_git_address(source: str) -> None:
    adopted = {"source": source, "ref": "main", "reconciled": "2026-01-31"}
    manifest = parse_manifest({**MANIFEST, "adopted_from": adopted})
    assert manifest.adopted_from is not None and manifest.adopted_from.source == source
    assert yaml.safe_load(dump_manifest(manifest))["adopted_from"]["ref"] == "main"


def test_licenses_are_written_as_spdx_does() -> None:
    assert parse_manifest({**MANIFEST, "licensing": "apache-2.0 or mit"}).licensing == "Apache-2.0 OR MIT"
    assert parse_manifest({**MANIFEST, "licensing": "Internal"}).licensing == "internal"


@pytest.mark.parametrize(
    ("text", "told"),
    [("a: [\n", r"manifest.yaml:2:1: not valid YAML"), ("- 1\n", "must hold a mapping"), ("", "name: Field required")],
)
def test_a_file_that_is_no_manifest_is_told(write: Write, text: str, told: str) -> None:
    with pytest.raises(ManifestError, match=told):
        load_manifest(write("manifest.yaml", text))


def test_a_missing_manifest_is_told(project: Path) -> None:
    with pytest.raises(ManifestError, match="no manifest"):
        load_manifest(project / "manifest.yaml")


def test_a_manifest_is_written_in_order_and_without_what_says_nothing() -> None:
    manifest = parse_manifest(dict(reversed(MANIFEST.items())))
    written = yaml.safe_load(dump_manifest(manifest))
    order = list(EnvironmentManifest.model_fields)
    assert list(written) == sorted(written, key=order.index)
    assert not {"config_path", "prompt_source", "sandbox", "adopted_from"} & set(written)
    assert parse_manifest(written) == manifest
    headless = {**MANIFEST, "resources_server": None, "integration_profile": "external-agent-loop"}
    assert yaml.safe_load(dump_manifest(parse_manifest(headless)))["resources_server"] is None


@pytest.mark.parametrize(
    ("config", "allowed"),
    [("config.yaml", True), ("../other/x.yaml", True), ("../../x.yaml", False), ("/x.yaml", False)],
)
def test_a_config_stays_in_the_tree(manifest: Callable[..., Path], config: str, allowed: bool) -> None:
    path = manifest(config_path=config)
    if allowed:
        assert resolve_manifest_config_path(path, load_manifest(path)) == path.parent / config
    else:
        with pytest.raises(ManifestError, match="leads out of"):
            resolve_manifest_config_path(path, load_manifest(path))


def test_elsewhere_a_config_stays_in_the_manifests_folder(write: Write) -> None:
    path = write("mine/manifest.yaml", yaml.safe_dump({**MANIFEST, "config_path": "../x.yaml"}))
    with pytest.raises(ManifestError, match="leads out of"):
        resolve_manifest_config_path(path, load_manifest(path))


def test_a_link_out_of_the_tree_is_followed_before_it_is_judged(manifest: Callable[..., Path], write: Write) -> None:
    path = manifest(config_path="link.yaml")
    (path.parent / "link.yaml").symlink_to(write("outside.yaml", ""))
    with pytest.raises(ManifestError, match="leads out of"):
        resolve_manifest_config_path(path, load_manifest(path))


def test_the_json_schema_has_the_rules_between_fields() -> None:
    schema = manifest_json_schema()
    assert schema["$schema"].endswith("2020-12/schema") and schema["$id"] == "environment-manifest.schema.json"
    assert schema["additionalProperties"] is False and "resources_server" in schema["required"]
    rules = {str(rule["if"]["properties"]): rule["then"] for rule in schema["allOf"]}
    verifier = rules["{'integration_profile': {'const': 'custom-gym-verifier'}}"]
    assert verifier["required"] == ["model_server", "resources_server"]
    assert rules["{'prompt_source': {'const': 'prepared'}}"]
    assert schema["$defs"]["ManifestDataset"]["allOf"][0]["then"]["required"] == ["prepare_script"]


BETWEEN_FIELDS = [
    without(MANIFEST, "model_server"),
    without(MANIFEST, rollout_driver="a.b:c"),
    without(MANIFEST, integration_profile="external-rollout-driver"),
    without(MANIFEST, datasets=[without(BENCHMARK["datasets"][0], "prepare_script")]),  # type: ignore[index]
    without(BENCHMARK, "canonical_split"),
    without(BENCHMARK, "standard_prompt_config"),
    without(BENCHMARK, datasets=MANIFEST["datasets"]),
    without(BENCHMARK, prompt_source="prepared"),
    without(BENCHMARK, "standard_prompt_config", prompt_source="agent"),
]


@pytest.mark.parametrize("wrong", BETWEEN_FIELDS, ids=range(len(BETWEEN_FIELDS)))
def test_the_json_schema_refuses_what_the_model_refuses(wrong: dict[str, Any]) -> None:
    validator = Draft202012Validator(manifest_json_schema())
    with pytest.raises(ManifestError):
        parse_manifest(wrong)
    assert not validator.is_valid(wrong)


@pytest.mark.parametrize(
    "right",
    [
        MANIFEST,
        BENCHMARK,
        without(MANIFEST, integration_profile="external-rollout-driver", rollout_driver="a.b:c"),
        without(MANIFEST, "model_server", integration_profile="external-agent-loop"),
    ],
    ids=range(4),
)
def test_the_json_schema_takes_what_the_model_takes(right: dict[str, Any]) -> None:
    parse_manifest(right)
    Draft202012Validator(manifest_json_schema()).validate(right)
