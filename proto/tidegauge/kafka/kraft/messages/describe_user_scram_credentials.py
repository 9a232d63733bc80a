"""DescribeUserScramCredentials (key 50) of Kafka 4.3.1: versions 0, flexible in 0+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, int8, int16, int32, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class UserName:
    name: str = string()


@dataclass(slots=True)
class DescribeUserScramCredentialsRequest:
    users: Sequence[UserName] | None = array(UserName, nullable="0+")


@dataclass(slots=True)
class CredentialInfo:
    mechanism: int = int8()
    iterations: int = int32()


@dataclass(slots=True)
class DescribeUserScramCredentialsResult:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    credential_infos: Sequence[CredentialInfo] = array(CredentialInfo)


@dataclass(slots=True)
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: Sequence[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
