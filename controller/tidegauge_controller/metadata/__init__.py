"""Kafka 4's metadata: records become images, decisions become records. Pure; it knows no log, no quorum, no broker."""
