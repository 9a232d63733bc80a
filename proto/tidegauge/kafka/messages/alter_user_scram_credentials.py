"""AlterUserScramCredentials (key 51) of Kafka 3.9.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, binary, int8, int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ScramCredentialDeletion:
    name: str = string()
    mechanism: int = int8()


@dataclass(slots=True)
class ScramCredentialUpsertion:
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = binary()
    salted_password: bytes = binary()


@dataclass(slots=True)
class AlterUserScramCredentialsRequest:
    deletions: Sequence[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: Sequence[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


@dataclass(slots=True)
class AlterUserScramCredentialsResult:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@dataclass(slots=True)
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = int32()
    results: Sequence[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
