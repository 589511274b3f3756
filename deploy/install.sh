#!/bin/sh
# Install Heinzelwerk on a machine or into an image: the one script that the Dockerfile's RUN lines call.
#
#   deploy/install.sh system              git and bubblewrap from the distribution (needs root; nothing where both are there)
#   deploy/install.sh python TARGET       a virtual environment of its own in TARGET, pinned by constraints.txt
#   deploy/install.sh agents TARGET       the pinned coding agents below TARGET, linked into TARGET/bin (needs npm)
#
# EXTRAS are the model providers to install with it (default: anthropic,openai,mcp). WHEEL installs that file instead of the
# checkout around this script. PYTHON names the interpreter.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)

usage() {
  echo "usage: deploy/install.sh system | python TARGET | agents TARGET" >&2
  exit 2
}

system() {
  if command -v git >/dev/null 2>&1 && command -v bwrap >/dev/null 2>&1; then
    echo "git and bubblewrap are there"
    return
  fi
  command -v apt-get >/dev/null 2>&1 || {
    echo "install git and bubblewrap with this system's package manager" >&2
    exit 1
  }
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends git bubblewrap ca-certificates
  rm -rf /var/lib/apt/lists/*
}

python_environment() { # target
  python=${PYTHON:-python3}
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
    echo "$python is not Python 3.11 or newer: set PYTHON" >&2
    exit 1
  }
  what=${WHEEL:-$here}
  extras=${EXTRAS-anthropic,openai,mcp}
  [ -z "$extras" ] || what="$what[$extras]"
  if command -v uv >/dev/null 2>&1; then
    uv venv -q --python "$python" "$1"
    uv pip install -q --python "$1/bin/python" -c "$here/constraints.txt" "$what"
  else
    "$python" -m venv "$1"
    "$1/bin/python" -m pip install -q --no-cache-dir --disable-pip-version-check -c "$here/constraints.txt" "$what"
  fi
  "$1/bin/heinzelwerk" --version
}

agents() { # target
  AGENT_CLI_CACHE="$1" "$here/deploy/install_agents.sh"
  mkdir -p "$1/bin"
  for program in "$1"/*/node_modules/.bin/claude "$1"/*/node_modules/.bin/codex "$1"/*/node_modules/.bin/pi; do
    ln -sf "$program" "$1/bin/$(basename "$program")"
  done
  ls "$1/bin"
}

[ $# -ge 1 ] || usage
step=$1
case "$step:$#" in
  system:1) system ;;
  python:2) python_environment "$2" ;;
  agents:2) agents "$2" ;;
  *) usage ;;
esac
