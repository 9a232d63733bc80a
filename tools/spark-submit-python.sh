#!/usr/bin/env bash
# Makes an environment's own spark-submit run with that environment's own Python, activated or not: PySpark's
# find-spark-home takes the first python3 on PATH, which need not have PySpark at all. Does nothing the second time.
set -euo pipefail
script="$1/find-spark-home"
[ -f "$script" ] || exit 0
was='PYSPARK_DRIVER_PYTHON="${PYSPARK_PYTHON:-"python3"}"'
is='export PYSPARK_DRIVER_PYTHON="${PYSPARK_PYTHON:-"$(cd "$(dirname "$0")"; pwd)/python3"}"'
content=$(cat "$script")
printf '%s\n' "${content//"     $was"/"     $is"}" > "$script"
