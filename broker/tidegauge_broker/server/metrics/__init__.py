"""Metrics of a broker for Prometheus, by the names that Kafka's usual JMX exporter rules give (docs/metrics.md)."""
