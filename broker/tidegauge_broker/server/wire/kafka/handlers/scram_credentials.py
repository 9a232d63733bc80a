"""DescribeUserScramCredentials (50) and AlterUserScramCredentials (51), version 0: credentials are kept and listed.

Any broker describes, the controller alone alters; elsewhere each user has NOT_CONTROLLER. Listeners with SASL take the
credentials as soon as the change has reached their broker.
Source: ``KafkaApis.handleDescribeUserScramCredentialsRequest``, ``handleAlterUserScramCredentialsRequest``, KIP-554.
"""

from __future__ import annotations

import logging

from tidegauge.cluster_metadata import MetadataUnavailable
from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.cluster_metadata.credentials import CredentialOutcome, Deletion, Upsertion
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from tidegauge.kafka.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part
from tidegauge_broker.server.wire.kafka.handlers.common import to_its_end
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_broker.server.wire.kafka.turns import converted

LOG = logging.getLogger("tidegauge.configs")


async def describe(
    request: DescribeUserScramCredentialsRequest, context: Context
) -> DescribeUserScramCredentialsResponse:
    """Return mechanism and iterations of each user."""
    try:
        found = await context.service.configs.users.describe([user.name for user in request.users or ()])
    except MetadataUnavailable as problem:
        LOG.warning("SCRAM credentials could not be described: %r", problem)
        return DescribeUserScramCredentialsResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    return DescribeUserScramCredentialsResponse(
        error_message="",
        results=await converted(lambda one: _described(*one), found.items()),
    )


def _described(user: str, outcome: CredentialOutcome) -> DescribeUserScramCredentialsResult:
    infos = [CredentialInfo(mechanism, iterations) for mechanism, iterations in outcome.iterations.items()]
    return DescribeUserScramCredentialsResult(user, outcome.error, outcome.message, infos)


async def alter(request: AlterUserScramCredentialsRequest, context: Context) -> AlterUserScramCredentialsResponse:
    """Remove and set credentials, if this broker is the controller."""
    named = dict.fromkeys([*(one.name for one in request.deletions), *(one.name for one in request.upsertions)])
    if not context.service.is_controller:
        not_here = ErrorCode.NOT_CONTROLLER
        results = [AlterUserScramCredentialsResult(user, not_here, None) for user in named]
        return AlterUserScramCredentialsResponse(results=results)
    alteration = context.service.configs.users.alter(
        [Deletion(one.name, one.mechanism) for one in request.deletions],
        [
            Upsertion(one.name, one.mechanism, one.iterations, bytes(one.salt), bytes(one.salted_password))
            for one in request.upsertions
        ],
    )
    outcomes = await to_its_end(alteration)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user, outcome.error, outcome.message) for user, outcome in outcomes.items()
        ]
    )


SERVED_APIS = (
    ServedApi(
        apis.DESCRIBE_USER_SCRAM_CREDENTIALS,
        describe,
        guard=whole.of_cluster(Operation.DESCRIBE),
        form=Form((Part("results", "users", {"user": "name"}),)),
        only_reads=True,
        is_counted=True,
    ),
    ServedApi(
        apis.ALTER_USER_SCRAM_CREDENTIALS,
        alter,
        guard=whole.of_controller(Operation.ALTER),
        form=Form((Part("results", "deletions", {"user": "name"}), Part("results", "upsertions", {"user": "name"}))),
    ),
)
