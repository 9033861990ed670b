# Sourced by run_local.sh and tests/run.sh: sets up .venv, the environment that both run in.

# ensure_venv ROOT [EXTRA]: ROOT/.venv holds what setup.py asks for, with the extra of that name where one is given.
# A stamp keeps what it was installed from, where and with which extra; nothing is done while that is the same.
ensure_venv() {
    local root=$1 extra=${2:-} venv=$1/.venv stamp python
    for stamp in "$venv/installed-$extra" "$venv"/installed-${extra:-*}; do
        if [ -x "$venv/bin/python" ] && { echo "$root"; cat "$root/setup.py"; } | cmp -s - "$stamp"; then
            return
        fi
    done
    if [ ! -x "$venv/bin/python" ]; then
        python=$(find_python)
        echo "setting up .venv with $("$python" --version): a few minutes ..." >&2
        "$python" -m venv --clear "$venv"
    else
        echo "bringing .venv up to date ..." >&2
    fi
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$root${extra:+[$extra]}"
    { echo "$root"; cat "$root/setup.py"; } > "$venv/installed-$extra"
}

# The first of PYTHON and the usual names that is a Python that the dependencies have wheels for.
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
