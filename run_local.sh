#!/usr/bin/env bash
# Build a dataset on this machine. Sets up .venv first, if it does not exist or setup.py has changed.
#   ./run_local.sh                          the conversations in examples/, into out/example
#   ./run_local.sh --input URL,.. ...       python -m pipeline with these options (--help lists them)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$root/venv.sh"
ensure_venv "$root" hub
if [ $# -eq 0 ]; then
    cd "$root"
    set -- --input examples/chats --tokenizer examples/tokenizer --output out/example \
        --max_length 2048 --packing bfd --validation_fraction 0.05
fi
exec "$root/.venv/bin/python" -m pipeline "$@"
