"""What a broker without authorizer, quotas and users responds with.

DescribeAcls (29), CreateAcls (30) and DeleteAcls (31), versions 0-3: SECURITY_DISABLED. DescribeClientQuotas (48),
versions 0-1: none. DescribeUserScramCredentials (50), version 0: none of all users, RESOURCE_NOT_FOUND for a name.
DescribeDelegationToken (41), versions 0-3: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED. So administration tools and pages that
ask for them show nothing instead of failing. Requests that would change quotas, users or tokens are not served.
Source: ``AclApis``, ``KafkaApis.handleDescribeClientQuotasRequest``, ``handleDescribeUserScramCredentialsRequest``,
``handleDescribeTokensRequest``.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge.kafka.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from tidegauge.kafka.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from tidegauge.kafka.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tidegauge.kafka.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from tidegauge.kafka.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from tidegauge.kafka.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from tidegauge_broker.server.wire.kafka.request import Context

_NO_AUTHORIZER = "No Authorizer is configured."


def describe_acls(request: DescribeAclsRequest, context: Context) -> DescribeAclsResponse:
    """Refuse."""
    del request, context
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER)


def create_acls(request: CreateAclsRequest, context: Context) -> CreateAclsResponse:
    """Refuse each."""
    del context
    refused = AclCreationResult(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))


def delete_acls(request: DeleteAclsRequest, context: Context) -> DeleteAclsResponse:
    """Refuse each."""
    del context
    refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))


def describe_client_quotas(request: DescribeClientQuotasRequest, context: Context) -> DescribeClientQuotasResponse:
    """There are none."""
    del request, context
    return DescribeClientQuotasResponse(error_message=None, entries=[])


def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: Context
) -> DescribeUserScramCredentialsResponse:
    """There are none."""
    del context
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[
            DescribeUserScramCredentialsResult(
                user.name,
                ErrorCode.RESOURCE_NOT_FOUND,
                f"Attempt to describe a user credential that does not exist: {user.name}",
            )
            for user in request.users or ()
        ],
    )


def describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: Context
) -> DescribeDelegationTokenResponse:
    """Refuse."""
    del request, context
    return DescribeDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
