"""Partition logs on disk, in Kafka's own format."""
