"""CreateDelegationToken (key 38) of Kafka 3.9.1: versions 0-3, flexible in 2+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, binary, int16, int32, int64, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class CreatableRenewers:
    principal_type: str = string()
    principal_name: str = string()


@dataclass(slots=True)
class CreateDelegationTokenRequest:
    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: Sequence[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


@dataclass(slots=True)
class CreateDelegationTokenResponse:
    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = binary()
    throttle_time_ms: int = int32()
