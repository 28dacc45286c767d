#!/usr/bin/env bash
# The CLI venv at /opt/gym-cli-venv: the versions of uv.lock, no development tools, the tree itself behind it.
set -euo pipefail

compile=(--compile-bytecode)
[ "${GYM_COMPILE_BYTECODE:-1}" = 1 ] || compile=()
rm -rf "$GYM_PREFIX/opt/gym-cli-venv"
unset VIRTUAL_ENV
UV_PROJECT_ENVIRONMENT="$GYM_PREFIX/opt/gym-cli-venv" UV_LINK_MODE="${UV_LINK_MODE:-copy}" \
    uv sync --quiet --locked --no-dev --project "$GYM_PREFIX/opt/Gym" --python "$GYM_PYTHON" "${compile[@]}"
