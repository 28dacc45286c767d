#!/usr/bin/env bash
# Any user may add venvs of further components, and has the folders that runs write to in the working directory.
set -euo pipefail

mkdir -p "$GYM_PREFIX/opt/Gym"/{outputs,results,cache}
chmod 1777 "$GYM_PREFIX/opt/Gym"/{outputs,results,cache}
find "$GYM_PREFIX/opt/gym-venvs" -maxdepth 2 -type d -not -name .venv -exec chmod a+rwx {} +
find "$GYM_PREFIX/opt/gym-venvs" -name '*.setup.lock' -exec chmod a+rw {} +
chmod -R a+rX "$GYM_PREFIX/opt/Gym" "$GYM_PREFIX/opt/gym-cli-venv" "$GYM_PREFIX/opt/gym-venvs"
