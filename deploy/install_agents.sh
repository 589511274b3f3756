#!/bin/sh
# Install the pinned coding-agent CLIs, and a Node that pi can run on, from the npm registry by name.
#
# They go to <XDG cache>/heinzelwerk/clis/<name>@<version>/, outside the checkout: 1.1 GB is paid once per machine
# and version. As root they go below /var/cache: the sandbox drops to an unprivileged account, which must be able to
# reach them, and /root is closed to it. A finished installation is marked by the file `.complete`; anything else is
# made anew.
# Prints the cache directory on the last line. Exact versions, because `npm install` under an old Node silently
# takes an older release that lacks the isolation flags.
set -eu

CLAUDE_CODE="@anthropic-ai/claude-code@2.1.332"
CODEX="@openai/codex@0.171.0"
PI="@earendil-works/pi-coding-agent@1.6.0"
NODE="node@22.23.3"

if [ "$(id -u)" = 0 ]; then base=/var/cache; else base="${XDG_CACHE_HOME:-$HOME/.cache}"; fi
cache="${AGENT_CLI_CACHE:-$base/heinzelwerk/clis}"
mkdir -p "$cache"
scratch_home="$(mktemp -d)" # a postinstall script writes to HOME: give it one of its own
trap 'rm -rf "$scratch_home"' EXIT

install_one() { # directory name, npm specification
  target="$cache/$1"
  [ -e "$target/.complete" ] && return 0
  echo "installing $2 into $target" >&2
  rm -rf "$target"
  mkdir -p "$target"
  printf '{"name":"heinzelwerk-clis","private":true}\n' >"$target/package.json"
  HOME="$scratch_home" npm install --prefix "$target" --no-audit --no-fund --no-update-notifier --loglevel=error \
    --save-exact --engine-strict=false --cache "$scratch_home/npm" "$2" >&2
  chmod -R a+rX "$target"
  : >"$target/.complete"
}

install_one "claude-code@${CLAUDE_CODE##*@}" "$CLAUDE_CODE"
install_one "codex@${CODEX##*@}" "$CODEX"
install_one "pi@${PI##*@}" "$PI"

node_major="$(node -p 'process.versions.node.split(".").slice(0,2).map(n=>n.padStart(3,"0")).join("")' 2>/dev/null || echo 000000)"
if [ "$node_major" -lt 022019 ]; then
  install_one "node@${NODE##*@}" "$NODE"
fi
echo "$cache"
