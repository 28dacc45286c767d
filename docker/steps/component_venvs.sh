#!/usr/bin/env bash
# A venv per component of prebuilt.txt under /opt/gym-venvs; each holds only what the CLI venv lacks.
set -euo pipefail

venvs="$GYM_PREFIX/opt/gym-venvs"
rm -rf "$venvs"
mkdir -p "$venvs"/{resources_servers,responses_api_agents,responses_api_models,environment_servers}
grep -v '^#' "$GYM_SOURCE/docker/prebuilt.txt" | (
    cd "$GYM_PREFIX/opt/Gym"
    UV_LINK_MODE="${UV_LINK_MODE:-copy}" "$GYM_PREFIX/opt/gym-cli-venv/bin/python" docker/build_component_venvs.py "$venvs"
)
if [ "${GYM_COMPILE_BYTECODE:-1}" = 1 ]; then
    "$GYM_PREFIX/opt/gym-cli-venv/bin/python" -m compileall -q -j 0 "$venvs" "$GYM_PREFIX/opt/Gym" || true
fi
