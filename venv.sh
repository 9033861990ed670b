# Sourced by run_local.sh and tests/run.sh. Sets up .venv, the environment in which both run.

# ensure_venv ROOT EXTRA: install the dependencies of setup.py, and those of an extra, into ROOT/.venv.
# A stamp file records the folder, the extra and the setup.py that were installed. If nothing has changed, nothing is done;
# nor if the extra test is there, which has all that run_local.sh needs.
ensure_venv() {
    local root=$1 extra=$2 venv=$1/.venv stamp python
    for stamp in "$venv/installed-$extra" "$venv/installed-test"; do
        if [ -x "$venv/bin/python" ] && { echo "$root"; cat "$root/setup.py"; } | cmp -s - "$stamp"; then
            return
        fi
    done
    if [ ! -x "$venv/bin/python" ]; then
        python=$(find_python)
        echo "setting up .venv with $("$python" --version); this takes a few minutes ..." >&2
        "$python" -m venv --clear "$venv"
    else
        echo "updating .venv ..." >&2
    fi
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$root[$extra]"
    # As pip does with what it installs, but not with editable code. Where PYTHONDONTWRITEBYTECODE is set, as in many
    # containers, each run would compile it again.
    "$venv/bin/python" -m compileall -q "$root/pipeline" "$root/transforms"
    { echo "$root"; cat "$root/setup.py"; } > "$venv/installed-$extra"
}

# Print the first of $PYTHON and the usual names that is a Python for which the dependencies have wheels.
find_python() {
    local name
    for name in "${PYTHON:-python3}" python3 python3.13 python3.12 python3.11 python3.10 python; do
        if "$name" -c 'import sys, venv; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    echo "Chatmill needs Python 3.10 to 3.13 with its venv module, and found none. Install one, or set PYTHON to it." >&2
    return 2
}
