#!/usr/bin/env bash
# Makes an environment's own Spark run with that environment's own Python, activated or not, and with the Java that
# tidegauge.java chooses: PySpark's find-spark-home takes the first python3 on PATH, which need not have PySpark at all,
# and its spark-class takes JAVA_HOME or the first java on PATH, which need not be there. Its Python workers start more
# quickly, too (compile_pyspark_zip.py). Does nothing the second time.
set -euo pipefail
script="$1/find-spark-home"
[ -f "$script" ] || exit 0
was='PYSPARK_DRIVER_PYTHON="${PYSPARK_PYTHON:-"python3"}"'
is='export PYSPARK_DRIVER_PYTHON="${PYSPARK_PYTHON:-"$(cd "$(dirname "$0")"; pwd)/python3"}"'
content=$(cat "$script")
printf '%s\n' "${content//"     $was"/"     $is"}" > "$script"

# Spark's scripts read this file before they look for Java (load-spark-env.sh), unless SPARK_CONF_DIR names another directory.
purelib=$("$1/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
mkdir -p "$purelib/pyspark/conf"
cat > "$purelib/pyspark/conf/spark-env.sh" <<'ENV'
# Written by tools/spark-environment.sh. A failure leaves it to Spark to look for Java; this has said why.
if chosen=$("$(dirname "${BASH_SOURCE[0]}")/../../../../../bin/python" -P -m tidegauge.java); then JAVA_HOME=$chosen; fi
unset chosen
ENV
"$1/python" "$(dirname "$0")/compile_pyspark_zip.py"
