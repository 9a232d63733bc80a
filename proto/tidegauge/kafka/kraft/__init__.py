"""What a quorum of controllers sends and writes: APIs and records of the metadata log as in Apache Kafka 4.3.1."""
