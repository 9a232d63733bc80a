"""Decisions of a Kafka 4 controller: an image with what is pending, a request and the time become records. Pure."""
