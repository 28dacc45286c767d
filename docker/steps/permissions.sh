#!/usr/bin/env bash
# Any user may add venvs of further components, and has the folders that runs write to in the working directory.
set -euo pipefail

mkdir -p "$GYM_PREFIX/opt/Gym"/{outputs,results,cache}
chmod 1777 "$GYM_PREFIX/opt/Gym"/{outputs,results,cache}
find "$GYM_PREFIX/opt/gym-venvs" -maxdepth 2 -type d -not -name .venv -exec chmod a+rwx {} +
find "$GYM_PREFIX/opt/gym-venvs" -name '*.setup.lock' -exec chmod a+rw {} +
chmod -R a+rX "$GYM_PREFIX/opt/Gym" "$GYM_PREFIX/opt/gym-cli-venv" "$GYM_PREFIX/opt/gym-venvs"

# What lies outside of the tree is left as it is, and may keep other users from all of it.
closed() {  # path
    local folder="$1"
    while [ "$folder" != / ] && [ "$folder" != . ]; do
        folder="$(dirname "$folder")"
        case "$(ls -ldL "$folder")" in
            ?????????[xt]*) ;;
            *) printf '%s\n' "$folder"; return ;;
        esac
    done
}
for path in "$GYM_PREFIX/opt" "$(readlink -f "$GYM_PREFIX/opt/gym-cli-venv/bin/python" || true)"; do
    folder="$(closed "$path")"
    [ -z "$folder" ] || printf 'Warning: other users can run nothing of this: %s is in %s, which only its owner may enter.\n' \
        "$path" "$folder" >&2
done
