"""A Spark session for the jobs of this folder, run by ``python`` or by ``spark-submit``.

Contract: the Python that runs the driver runs the workers. Without a master, from spark-submit or from ``--master``, a
job runs in local mode on two cores. Spark's log (WARN) goes to stderr; there is no progress bar and no web page.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from typing import Any

from tidegauge_spark import register

MASTER_HELP = "Spark master, for example local[4] or spark://host:7077 (default: spark-submit's, else local[2])"


def create_session(app_name: str, master: str | None = None) -> Any:
    """A quiet session that knows the format ``tidegauge``.

    Args:
        app_name: shown by Spark.
        master: any Spark master; None: what spark-submit says, else ``local[2]``.
    """
    # Workers and planners run the interpreter that these name, not this one.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    from pyspark import SparkConf  # noqa: PLC0415  (after the environment is set)
    from pyspark.sql import SparkSession  # noqa: PLC0415  (the same)

    builder = SparkSession.builder.appName(app_name)
    submitted = SparkConf().get("spark.master") if "PYSPARK_GATEWAY_PORT" in os.environ else None
    where = master or submitted or "local[2]"
    if where != submitted:
        builder = builder.master(where)
    if where.startswith("local"):
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    quiet: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
    spark = builder.config(map=quiet).getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    register(spark)
    return spark


def sentence(error: BaseException) -> str:
    """What to tell people about a failure: the cause's own sentence, not the stack around it."""
    text = str(error)
    ours = re.findall(r"TidegaugeError: (.+)", text)
    return str(ours[-1]) if ours else text.strip().split("\n", 1)[0] or type(error).__name__
