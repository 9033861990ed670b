#!/usr/bin/env bash
# Sets up .venv with the test dependencies where they are missing, then runs everything: lint, format, types, tests.
# Arguments go to pytest.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
. ./venv.sh
ensure_venv "$root" test
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
exec .venv/bin/python -m pytest "$@"
