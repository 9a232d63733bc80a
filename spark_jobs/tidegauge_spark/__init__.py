"""The Spark data source ``tidegauge``."""
