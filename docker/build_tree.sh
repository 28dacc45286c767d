#!/usr/bin/env bash
# Builds what the container holds under PREFIX: source tree, CLI venv, component venvs, aliases. Needs uv, no container engine.
#
#   docker/build_tree.sh PREFIX [PYTHON]     the image uses PREFIX=/; PYTHON is python3 unless named
#
# GYM_COMMIT names the commit where there is no git checkout. GYM_COMPILE_BYTECODE=0 leaves bytecode out.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
mkdir -p "$1"
GYM_PREFIX="$(cd "$1" && pwd)"
GYM_PREFIX="${GYM_PREFIX%/}"
GYM_PYTHON="${2:-python3}"
GYM_SOURCE="$(cd "$here/.." && pwd)"
export GYM_PREFIX GYM_PYTHON GYM_SOURCE

command -v uv >/dev/null || { echo "docker/build_tree.sh needs uv on PATH: python3 -m pip install uv." >&2; exit 1; }

for step in source_tree cli_venv component_venvs aliases permissions; do
    printf '== %s\n' "$step"
    "$here/steps/$step.sh"
done
"$here/report_sizes.sh" "$GYM_PREFIX"
