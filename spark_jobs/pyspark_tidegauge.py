"""Makes ``.format("tidegauge")`` known to Spark wherever the distribution is installed.

Contract: Spark imports every top-level module ``pyspark_*`` and takes its ``DefaultSource``; one that fails to import
disables all of them. So nothing heavy is imported here: pyspark itself, and of ours only what needs no other library.
"""

from __future__ import annotations

from tidegauge_spark.source import TidegaugeDataSource


class DefaultSource(TidegaugeDataSource):
    """The source ``tidegauge``, under the name that Spark looks for."""
