#!/bin/sh
# Make the secrets that docker-compose.yml mounts, each a file of its own below deploy/secrets/ (or the directory that is named).
# What is there already is kept. The directory is closed to others; the files in it are readable, because the processes in
# the containers have another account than yours.
set -eu
directory=${1:-$(dirname "$0")/secrets}
umask 077
mkdir -p "$directory"

word() { LC_ALL=C tr -dc 'a-z0-9' </dev/urandom | head -c 40; }
keep() { # name, content
  [ -e "$directory/$1" ] || printf '%s\n' "$2" >"$directory/$1"
  chmod 444 "$directory/$1"
}

[ -e "$directory/store_conf" ] || printf 'requirepass %s\n' "$(word)" >"$directory/store_conf"
password=$(cut -d' ' -f2 "$directory/store_conf")
keep redis_url "redis://:$password@store:6379/0"
keep flower_login "heinzelwerk:$(word)"
keep heinzelwerk_events__sources__github__secret "$(word)"
chmod 444 "$directory/store_conf"
echo "made $directory: store_conf, redis_url, flower_login, and what GitHub signs events with"
echo "a model's key: write it to $directory/anthropic_api_key (chmod 444), then take the marks off its two lines in docker-compose.yml"
