"""Makes ``.format("tidegauge")`` known to Spark wherever the distribution is installed.

Contract: Spark imports every top-level module ``pyspark_*`` and takes its ``DefaultSource``; one that fails to import
disables all of them. So nothing heavy is imported here: pyspark itself, and of this project only what needs no other
library. In a PySpark that is too old there is no ``DefaultSource``, which does no harm; ``register`` says why.
"""

from __future__ import annotations

try:
    from tidegauge_spark.source import TidegaugeDataSource
except ImportError:
    pass
else:

    class DefaultSource(TidegaugeDataSource):
        """The source ``tidegauge``, under the name that Spark looks for."""
