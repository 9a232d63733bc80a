"""The Spark data source ``tidegauge``: committed records of a cluster, as Spark's own Kafka source gives them.

Contract: ``register(spark)`` makes ``.format("tidegauge")`` known to a session. Where the distribution is installed
Spark finds the source by itself (``pyspark_tidegauge``), and a registration is harmless. Spark's Python workers import
this package and what it needs (gRPC, aiokafka, pyarrow), so the distribution must be installed for them too; in local
mode they run the interpreter that PYSPARK_PYTHON names. Importing the package imports no pyspark.
"""

from __future__ import annotations

from typing import Any

__all__ = ["register"]


def register(spark: Any) -> None:
    """Make the format ``tidegauge`` known to a Spark session."""
    from tidegauge_spark.source import TidegaugeDataSource  # noqa: PLC0415  (pyspark only when it is used)

    try:
        spark.dataSource.register(TidegaugeDataSource)
    except Exception as error:
        # Found by itself already: Spark lets nobody replace such a source, and it is this one.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
