"""The protocol of a controller quorum: APIs and metadata log records as in Apache Kafka 4.3.1."""
