#!/usr/bin/env bash
# The source tree at /opt/Gym, without tests and recorded rollouts, and the commit it is of.
set -euo pipefail

tree="$GYM_PREFIX/opt/Gym"
left_out='(^|/)tests/|^\.ci/|^docs/pictures/|/data/[^/]*example_rollouts\.jsonl$|^\.git'

cd "$GYM_SOURCE"
if files="$(git ls-files --cached --others --exclude-standard 2>/dev/null)" && [ -n "$files" ]; then
    commit="${GYM_COMMIT:-$(git rev-parse HEAD)}"
else
    files="$(find . -type f -not -path './.git/*' -not -path './.venv/*' -not -name '*.pyc' | sed 's|^\./||')"
    commit="${GYM_COMMIT:-unknown}"
fi

rm -rf "$tree"
mkdir -p "$tree"
printf '%s\n' "$files" | grep -Ev "$left_out" | while IFS= read -r file; do
    [ -e "$file" ] && printf '%s\0' "$file"
done | tar --null --files-from=- -cf - | tar -xf - --no-same-owner -C "$tree"
printf '%s\n' "$commit" > "$GYM_PREFIX/opt/gym-commit"
cat > "$tree/env.yaml" <<SETTINGS
# Settings of the container: components run in the venvs it brings. Values here beat configuration files and are beaten by
# the command line; an env.yaml in the working directory replaces this one.
skip_venv_if_present: true
uv_venv_dir: $GYM_PREFIX/opt/gym-venvs
SETTINGS
