"""The JSON schema of a manifest, with the rules between its fields in it."""

from __future__ import annotations

from typing import Any

from nemo_gym.environment.manifest import EnvironmentManifest

_SCHEMA_ID = "environment-manifest.schema.json"


def schema() -> dict[str, Any]:
    """The schema of `manifest.yaml`, draft 2020-12."""
    fields = EnvironmentManifest.model_json_schema(mode="validation")
    fields["$defs"]["ManifestDataset"]["allOf"] = [_if({"type": "benchmark"}, _filled("prepare_script"))]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": _SCHEMA_ID,
        **fields,
        "allOf": [*_profile_rules(), *_benchmark_rules(), *_prompt_rules()],
    }


def _profile_rules() -> list[dict[str, Any]]:
    driver = "external-rollout-driver"
    return [
        _if({"integration_profile": "custom-gym-verifier"}, _filled("model_server", "resources_server")),
        _if({"integration_profile": "custom-gym-agent-loop"}, _filled("model_server")),
        {**_if({"integration_profile": driver}, _filled("rollout_driver")), "else": _empty("rollout_driver")},
    ]


def _benchmark_rules() -> list[dict[str, Any]]:
    has_benchmark = {"properties": {"datasets": {"contains": {"properties": {"type": {"const": "benchmark"}}}}}}
    return [
        _if({"kind": "benchmark"}, _filled("canonical_split")),
        _if({"kind": "benchmark"}, has_benchmark),
        {
            "if": {
                "properties": {"kind": {"const": "benchmark"}, "prompt_source": {"const": "template"}},
                "required": ["kind"],
            },
            "then": _filled("standard_prompt_config"),
        },
    ]


def _prompt_rules() -> list[dict[str, Any]]:
    plain_sets = {"properties": {"datasets": {"items": _empty("prompt_config")}}}
    return [
        _if({"prompt_source": "prepared"}, _empty("standard_prompt_config")),
        _if({"prompt_source": "prepared"}, plain_sets),
        _if({"prompt_source": "agent"}, plain_sets),
    ]


def _if(fields: dict[str, str], then: dict[str, Any]) -> dict[str, Any]:
    conditions = {name: {"const": value} for name, value in fields.items()}
    return {"if": {"properties": conditions, "required": list(fields)}, "then": then}


def _filled(*fields: str) -> dict[str, Any]:
    return {"properties": {field: {"type": "string"} for field in fields}, "required": list(fields)}


def _empty(*fields: str) -> dict[str, Any]:
    return {"properties": {field: {"type": "null"} for field in fields}}
