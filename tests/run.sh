#!/usr/bin/env bash
# Run lint, types and tests. Sets up .venv with the test dependencies first, if it does not exist or setup.py has changed.
#   tests/run.sh [PYTEST ARGUMENT ..]            everything
#   tests/run.sh --fast [PYTEST ARGUMENT ..]     unit tests and the quickest integration tests, in less than two minutes
#   tests/run.sh --trainers [PYTEST ARGUMENT ..] the recipes with the trainers (TRL, Axolotl, ms-swift ..), which it installs
#                                                into ~/.cache/chatmill the first time (25 GB)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
. ./venv.sh
if [ "${1:-}" = --fast ]; then
    shift
    set -- -m "not slow" tests/unit tests/integration/test_{masks,own_pipeline,package}.py "$@"
fi
if [ "${1:-}" = --trainers ]; then
    shift
    export TEST_TRAINERS=1
    set -- -n0 tests/trainers "$@"
fi
ensure_venv "$root" test
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
exec .venv/bin/python -m pytest "$@"
