#!/usr/bin/env bash
# Build Beam's job server for Flink 1.19 from Maven Central, for networks in which Beam cannot download the one that it
# publishes. It is built once for each pom.xml, at the path that the tests name. Prints the path.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
jar=${XDG_CACHE_HOME:-$HOME/.cache}/chatmill/flink-job-server-1.19.jar
if [ ! -f "$jar" ] || ! cmp -s "$here/pom.xml" "$jar.pom.xml"; then
    command -v mvn > /dev/null || { echo "Maven is not installed (Debian: apt-get install maven)." >&2; exit 2; }
    echo "building $jar (160 MB); this takes a few minutes ..." >&2
    mkdir -p "$(dirname "$jar")"
    attempt=$(mktemp -d "$jar.XXXXXX")
    trap 'rm -rf "$attempt"' EXIT
    cp "$here/pom.xml" "$attempt"
    mvn --batch-mode --quiet --file "$attempt/pom.xml" package >&2
    mv "$attempt/target/job-server.jar" "$jar"
    mv "$attempt/pom.xml" "$jar.pom.xml"
fi
echo "$jar"
