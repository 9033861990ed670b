#!/usr/bin/env bash
# Stop the cluster that start.sh started with the same FOLDER:
#   stop.sh FOLDER
set -euo pipefail
pids=${1:?usage: stop.sh FOLDER}/pids
if [ ! -d "$pids" ]; then
    echo "no cluster was started in $1." >&2
    exit 2
fi
mapfile -t processes < <(cat "$pids"/*.pid)
signal() { kill "-$1" "${processes[@]}" 2> /dev/null; } # true while one of them exists
signal TERM || true
for _ in $(seq 100); do
    signal 0 || break
    sleep 0.1
done
signal KILL || true
rm -rf "$pids" "$1/tmp"
