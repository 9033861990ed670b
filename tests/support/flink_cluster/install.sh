#!/usr/bin/env bash
# Install Flink from PyPI, once, for start.sh: a cluster on one machine, for trying out and testing. Prints its folder.
set -euo pipefail
version=1.19.3
home=${XDG_CACHE_HOME:-$HOME/.cache}/chatmill/flink-$version
if [ ! -d "$home" ]; then
    echo "installing Flink $version into $home (260 MB) ..." >&2
    mkdir -p "$(dirname "$home")"
    attempt=$(mktemp -d "$home.XXXXXX")
    trap 'rm -rf "$attempt"' EXIT
    pip=("${PYTHON:-python3}" -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps)
    "${pip[@]}" --target "$attempt/jars" "apache-flink-libraries==$version" >&2
    # Scripts and configuration are the same in the wheels for all Pythons and platforms, so any wheel will do.
    "${pip[@]}" --target "$attempt/scripts" --only-binary :all: --python-version 3.11 --platform manylinux1_x86_64 \
        "apache-flink==$version" >&2
    cp -R "$attempt"/scripts/pyflink/{bin,conf} "$attempt/jars/pyflink"
    chmod +x "$attempt"/jars/pyflink/bin/*.sh
    [ -d "$home" ] || mv "$attempt/jars/pyflink" "$home"
fi
echo "$home"
