"""DescribeDelegationToken (key 41) of Kafka 3.9.1: versions 0-3, flexible in 2+.

Generated: make kafka-messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.kafka.fields import array, binary, int16, int32, int64, string
from tidegauge.lazy_dataclasses import dataclass


@dataclass(slots=True)
class DescribeDelegationTokenOwner:
    principal_type: str = string()
    principal_name: str = string()


@dataclass(slots=True)
class DescribeDelegationTokenRequest:
    owners: Sequence[DescribeDelegationTokenOwner] | None = array(DescribeDelegationTokenOwner, nullable="0+")


@dataclass(slots=True)
class DescribedDelegationTokenRenewer:
    principal_type: str = string()
    principal_name: str = string()


@dataclass(slots=True)
class DescribedDelegationToken:
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = binary()
    renewers: Sequence[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


@dataclass(slots=True)
class DescribeDelegationTokenResponse:
    error_code: int = int16()
    tokens: Sequence[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()
