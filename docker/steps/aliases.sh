#!/usr/bin/env bash
# `gym` on PATH, and the second set of paths that recipes and documents name.
set -euo pipefail

mkdir -p "$GYM_PREFIX/usr/local/bin" "$GYM_PREFIX/opt/chainguard/nemo-gym"
ln -sfn "$GYM_PREFIX/opt/gym-cli-venv/bin/gym" "$GYM_PREFIX/usr/local/bin/gym"
ln -sfn "$GYM_PREFIX/opt/Gym" "$GYM_PREFIX/opt/chainguard/nemo-gym/Gym"
for name in gym-cli-venv gym-venvs gym-commit; do
    ln -sfn "$GYM_PREFIX/opt/$name" "$GYM_PREFIX/opt/chainguard/nemo-gym/$name"
done
