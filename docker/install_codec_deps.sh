#!/usr/bin/env bash
# Installs packages with media codecs, which the image leaves out, into a venv: docker/install_codec_deps.sh [PYTHON]
#
# Versions are those of uv.lock where it names them. The project's own uv settings are bypassed; running it again changes
# nothing.
set -euo pipefail

tree="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="${1:-$tree/../gym-cli-venv/bin/python}"
uv="$(command -v uv || echo "$(dirname "$python")/uv")"
[ -x "$python" ] || { echo "There is no $python: name the venv's python as the argument." >&2; exit 1; }

wanted=()
for name in opencv-python-headless torchvision torchaudio; do
    version="$(awk -v wanted="name = \"$name\"" '$0 == wanted { getline; gsub(/version = |"/, ""); print; exit }' "$tree/uv.lock")"
    wanted+=("$name${version:+==$version}")
done
exec "$uv" pip install --no-config --python "$python" "${wanted[@]}"
