"""Delegation tokens: there are none.

CreateDelegationToken (38) and DescribeDelegationToken (41), versions 0-3, RenewDelegationToken (39) and
ExpireDelegationToken (40), versions 0-2: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, so that tools say why.
Source: ``KafkaApis.handleCreateTokenRequest`` and its neighbours.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge.kafka.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from tidegauge.kafka.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from tidegauge.kafka.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from tidegauge.kafka.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from tidegauge_broker.security.principal import ANONYMOUS
from tidegauge_broker.server.wire.kafka.request import Context


def create_delegation_token(request: CreateDelegationTokenRequest, context: Context) -> CreateDelegationTokenResponse:
    """Refuse, and name the owner and who asked."""
    del context
    return CreateDelegationTokenResponse(
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type=request.owner_principal_type or ANONYMOUS.kind,
        principal_name=request.owner_principal_name or ANONYMOUS.name,
        token_requester_principal_type=ANONYMOUS.kind,
        token_requester_principal_name=ANONYMOUS.name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )


def renew_delegation_token(request: RenewDelegationTokenRequest, context: Context) -> RenewDelegationTokenResponse:
    """Refuse."""
    del request, context
    return RenewDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1)


def expire_delegation_token(request: ExpireDelegationTokenRequest, context: Context) -> ExpireDelegationTokenResponse:
    """Refuse."""
    del request, context
    return ExpireDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1)


def describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: Context
) -> DescribeDelegationTokenResponse:
    """Refuse."""
    del request, context
    return DescribeDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
