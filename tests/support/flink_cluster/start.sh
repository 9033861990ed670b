#!/usr/bin/env bash
# Start a Flink cluster on this machine, on free ports, and print its host:port for --flink_master:
#   start.sh FOLDER [TASKMANAGERS [NAME=VALUE ..]]
# FOLDER is for logs and for what stop.sh needs; 2 TaskManagers by default; NAME=VALUE are settings of Flink.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:?usage: start.sh FOLDER [TASKMANAGERS [NAME=VALUE ..]]} taskmanagers=${2:-2}
flink=$("$here/install.sh")
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
if [ -d "$folder/pids" ]; then
    echo "a cluster was started in $folder and not stopped; stop.sh $folder stops it." >&2
    exit 2
fi
export FLINK_LOG_DIR=$folder/logs FLINK_PID_DIR=$folder/pids
mkdir "$FLINK_PID_DIR"
mkdir -p "$FLINK_LOG_DIR" "$folder/tmp"

read -r rpc rest < <("${PYTHON:-python3}" -c '
import socket
held = [socket.create_server(("localhost", 0)) for _ in range(2)]
print(*(server.getsockname()[1] for server in held))')

# The JVMs are small, because Python workers do the work. A job that has lost a TaskManager restarts, and continues from its
# receipts. Restarts are allowed for longer than the heartbeat timeout: until then Flink still offers the lost TaskManager.
# What is shuffled is small, and with --shuffle or --dedup it is so in several places at once: by default Flink would
# need 16 MiB for each.
settings=(
    -D "jobmanager.rpc.port=$rpc"
    -D "rest.port=$rest"
    -D "io.tmp.dirs=$folder/tmp"
    -D jobmanager.memory.process.size=1g
    -D taskmanager.memory.process.size=1g
    -D taskmanager.network.sort-shuffle.min-buffers=64
    -D taskmanager.numberOfTaskSlots=1
    -D cluster.evenly-spread-out-slots=true
    -D heartbeat.interval=2000
    -D heartbeat.timeout=8000
    -D restart-strategy.type=fixed-delay
    -D restart-strategy.fixed-delay.attempts=5
    -D "restart-strategy.fixed-delay.delay=4 s"
)
for setting in "${@:3}"; do
    settings+=(-D "$setting")
done
"$flink/bin/jobmanager.sh" start "${settings[@]}" >&2
for _ in $(seq "$taskmanagers"); do
    "$flink/bin/taskmanager.sh" start "${settings[@]}" >&2
done

for _ in $(seq 120); do
    if curl --silent --max-time 5 "http://localhost:$rest/overview" | grep -q "\"taskmanagers\":$taskmanagers,"; then
        echo "localhost:$rest"
        exit
    fi
    sleep 0.5
done
echo "the cluster did not start within a minute; its logs are in $FLINK_LOG_DIR." >&2
"$here/stop.sh" "$folder"
exit 1
