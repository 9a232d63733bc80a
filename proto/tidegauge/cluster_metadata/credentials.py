"""SCRAM credentials of users as plain values: what a controller keeps of a password. Pure.

Source: RFC 5802, ``org.apache.kafka.common.security.scram.ScramCredential``, KIP-554.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidegauge.errors import ErrorCode

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Mechanisms by Kafka's numbers (``ScramMechanism``)."""


class ScramCredential(NamedTuple):
    """The stored form of a password, for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        """Return a text without the keys: it may reach a log."""
        return f"ScramCredential(iterations={self.iterations})"


class Upsertion(NamedTuple):
    """A credential to be set.

    Attributes:
        user: whose.
        mechanism: a key of ``MECHANISMS``; any other number is refused.
        iterations: of the hash, by the client.
        salt: random, chosen by the client.
        salted_password: RFC 5802's SaltedPassword.
    """

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class Deletion(NamedTuple):
    """A credential to be removed."""

    user: str
    mechanism: int


class CredentialOutcome(NamedTuple):
    """The result of altering or describing a user's credentials: iterations by mechanism."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    iterations: Mapping[int, int] = {}
