#!/bin/sh
# Make history.bundle from history.py again: the same commits on every machine, whatever git's settings there.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
git init --quiet --bare --initial-branch=main "$work/history.git"
"${PYTHON:-python3}" history.py | git -C "$work/history.git" fast-import --quiet --date-format=raw
# One thread, so that the pack's bytes do not depend on the number of cores either.
git -C "$work/history.git" -c pack.threads=1 bundle create --quiet --version=2 "$PWD/history.bundle" HEAD main
echo "history.bundle: $(git -C "$work/history.git" rev-list --count main) commits, main at $(git -C "$work/history.git" rev-parse main)"
