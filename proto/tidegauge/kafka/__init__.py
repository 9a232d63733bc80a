"""Kafka's wire protocol, pure: bytes to values and back. Nothing here opens a socket or knows a broker."""
