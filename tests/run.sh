#!/usr/bin/env bash
# Run lint, types and tests. Sets up .venv with the test dependencies first, if it does not exist or setup.py has changed.
#   tests/run.sh [PYTEST ARGUMENT ..]            all but what takes hours
#   tests/run.sh --fast [PYTEST ARGUMENT ..]     unit tests and the quickest integration tests, each with a few examples
#   tests/run.sh --nightly [LANE ..]             everything at length, with Flink, a browser, trainers and mutants: hours; it
#                                                writes tests/nightly.json
#   tests/run.sh --trainers [PYTEST ARGUMENT ..] the recipes with the trainers (TRL, Axolotl, ms-swift ..), which it installs
#                                                into ~/.cache/chatmill the first time (25 GB)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
. ./venv.sh
ensure_venv "$root" test
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
case "${1:-}" in
    --nightly)
        shift
        exec .venv/bin/python tests/nightly.py "$@"
        ;;
    --fast)
        shift
        export TEST_FAST=1
        set -- -m "not slow and not nightly" tests/unit tests/integration/test_{masks,own_pipeline,package}.py "$@"
        ;;
    --trainers)
        shift
        export TEST_TRAINERS=1
        set -- -n0 tests/trainers "$@"
        ;;
    *)
        set -- -m "not nightly" "$@"
        ;;
esac
exec .venv/bin/python -m pytest "$@"
