#!/usr/bin/env bash
# How much the tree under PREFIX takes, in MB: docker/report_sizes.sh PREFIX
set -euo pipefail

root="${1%/}/opt"
size() { du -sm "$1" | cut -f 1; }
printf '%-60s %6s MB\n' "source tree" "$(size "$root/Gym")" "CLI venv" "$(size "$root/gym-cli-venv")"
find "$root/gym-venvs" -name .venv -maxdepth 3 | sort | while IFS= read -r venv; do
    name="${venv#"$root/gym-venvs/"}"
    printf '%-60s %6s MB\n' "${name%/.venv}" "$(size "$venv")"
done
printf '%-60s %6s MB\n' "all of it" "$(du -smc "$root/Gym" "$root/gym-cli-venv" "$root/gym-venvs" | tail -1 | cut -f 1)"
