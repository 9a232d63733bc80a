"""Delegation tokens: there are none.

CreateDelegationToken (38) and DescribeDelegationToken (41), versions 0-3, RenewDelegationToken (39) and
ExpireDelegationToken (40), versions 0-2: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, so that tools say why; for a client that
has authenticated itself DELEGATION_TOKEN_AUTH_DISABLED, as of a broker without ``delegation.token.secret.key``.
Source: ``KafkaApis.handleCreateTokenRequest`` and its neighbours, ``allowTokenRequests``, ``DelegationTokenManager``.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
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
from tidegauge.principal import ANONYMOUS
from tidegauge_broker.server.wire.kafka.error_forms import Form
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi


def create_delegation_token(request: CreateDelegationTokenRequest, context: Context) -> CreateDelegationTokenResponse:
    """Refuse, and name the owner and who asked; an owner without a name is who asked."""
    requester = context.caller.principal
    kind, name = requester.kind, requester.name
    if request.owner_principal_name:
        kind, name = request.owner_principal_type or "", request.owner_principal_name
    return CreateDelegationTokenResponse(
        _refusal(context),
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )


def renew_delegation_token(request: RenewDelegationTokenRequest, context: Context) -> RenewDelegationTokenResponse:
    """Refuse."""
    del request
    return RenewDelegationTokenResponse(_refusal(context), expiry_timestamp_ms=-1)


def expire_delegation_token(request: ExpireDelegationTokenRequest, context: Context) -> ExpireDelegationTokenResponse:
    """Refuse."""
    del request
    return ExpireDelegationTokenResponse(_refusal(context), expiry_timestamp_ms=-1)


def describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: Context
) -> DescribeDelegationTokenResponse:
    """Refuse."""
    del request
    return DescribeDelegationTokenResponse(_refusal(context))


def _refusal(context: Context) -> ErrorCode:
    """Return why there is no token: anonymous caller, or disabled tokens."""
    if context.caller.principal == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


SERVED_APIS = (
    ServedApi(
        apis.CREATE_DELEGATION_TOKEN,
        create_delegation_token,
        guard=None,
        form=Form(
            values={
                "principal_type": "User",
                "principal_name": "ANONYMOUS",
                "token_requester_principal_type": "User",
                "token_requester_principal_name": "ANONYMOUS",
                **dict.fromkeys(("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"), -1),
            }
        ),
    ),
    ServedApi(apis.RENEW_DELEGATION_TOKEN, renew_delegation_token, guard=None),
    ServedApi(apis.EXPIRE_DELEGATION_TOKEN, expire_delegation_token, guard=None),
    ServedApi(apis.DESCRIBE_DELEGATION_TOKEN, describe_delegation_token, guard=None, only_reads=True),
)
