"""Outside suites, run as they are against Tidegauge and Apache Kafka 3.9.1; docs/compatibility.md has the results."""
