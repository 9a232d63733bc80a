"""The Spark data source ``tidegauge``: committed records of a cluster, as Spark's own Kafka source gives them.

Contract: ``register(spark)`` makes ``.format("tidegauge")`` known to a session. If the distribution is installed Spark
finds the source by itself (``pyspark_tidegauge``), and a registration is harmless. With ``--py-files`` the package
itself may be missing in the workers (``shipping``), but not the libraries that it needs (``setup``). Importing the
package imports no pyspark.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from typing import Any

__all__ = ["register"]
MANAGER = "org.apache.spark.sql.execution.datasources.DataSourceManager"


def register(spark: Any) -> None:
    """Make the format ``tidegauge`` known to a Spark session.

    In local mode the source runs in the Python that calls this, unless PYSPARK_PYTHON or spark.pyspark.python names
    another one: Spark itself would take the first ``python3`` on the PATH.

    Raises:
        TidegaugeError: INVALID_CONFIG, PySpark is too old or a module is missing.
    """
    import pyspark  # noqa: PLC0415  (only when it is used)

    from tidegauge.errors import ErrorCode, TidegaugeError  # noqa: PLC0415  (the package itself imports nothing)
    from tidegauge_spark.setup import setup_problem  # noqa: PLC0415  (as above)

    problem = setup_problem(pyspark.__version__, _is_there, sys.executable)
    if problem is not None:
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, problem)
    from tidegauge_spark.source import TidegaugeDataSource  # noqa: PLC0415  (needs what was looked for above)

    _same_python(spark)
    _without_warning_of_replacement(spark)
    try:
        spark.dataSource.register(TidegaugeDataSource)
    except Exception as error:
        # Spark has found it already: such a source can't be replaced, and it is this one.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


def _without_warning_of_replacement(spark: Any) -> None:
    """Keep Spark's DataSourceManager from warning that a source replaces the one that it has found by itself.

    Both are this source, and Spark warns once for each session that it derives. The registration is needed all the
    same: a source that Spark has found by itself can't be shipped to executors that lack the distribution.
    """
    jvm = getattr(spark, "_jvm", None)  # a session of Spark Connect has none
    if jvm is None:
        return
    log4j = jvm.org.apache.logging.log4j
    with contextlib.suppress(Exception):  # another logging library: then the warning stays
        log4j.core.config.Configurator.setLevel(MANAGER, log4j.Level.ERROR)


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it
        return False


def _same_python(spark: Any) -> None:
    """Let functions that are registered from now on run in this Python, in local mode."""
    context = getattr(spark, "_sc", None)  # a session of Spark Connect has none
    if context is None or not str(context.master).startswith("local"):
        return
    if "PYSPARK_PYTHON" not in os.environ and context.getConf().get("spark.pyspark.python") is None:
        context.pythonExec = sys.executable
