#!/usr/bin/env bash
# What the image adds to a Debian with Python: curl, ps, xxd, CA certificates, and orjson and PyYAML for its own python3.
set -euo pipefail

export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install --yes --no-install-recommends ca-certificates curl procps xxd
rm -rf /var/lib/apt/lists/*
python3 -m pip install --no-cache-dir --root-user-action=ignore orjson pyyaml
