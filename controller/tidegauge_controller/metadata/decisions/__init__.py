"""Decisions of a Kafka 4 controller: an image with the pending records, a request and the time become records. Pure."""
