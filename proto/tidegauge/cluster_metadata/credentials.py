"""SCRAM credentials of users as plain values: what a controller keeps of a password. Pure.

Source: RFC 5802, ``org.apache.kafka.common.security.scram.ScramCredential``, KIP-554.
"""

from __future__ import annotations

from typing import NamedTuple

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Mechanisms by Kafka's numbers (``ScramMechanism``)."""


class ScramCredential(NamedTuple):
    """What is kept of a password, for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        """Return a text without the keys: it may reach a log."""
        return f"ScramCredential(iterations={self.iterations})"
