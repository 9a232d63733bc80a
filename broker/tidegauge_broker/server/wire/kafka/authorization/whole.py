"""Guards that allow or refuse a request as a whole: by the cluster, a group or a transactional id."""

from __future__ import annotations

from typing import Any

from tidegauge.cluster_metadata.access_lists import CLUSTER_NAME, Operation, ResourceType
from tidegauge.errors import ErrorCode
from tidegauge_broker.server.wire.kafka.authorization.asking import (
    BY_CLUSTER,
    BY_CLUSTER_MESSAGE,
    BY_GROUP,
    BY_TRANSACTION,
    Ask,
    Guard,
    changed,
)
from tidegauge_broker.server.wire.kafka.fetch_reader import is_followers
from tidegauge_broker.server.wire.kafka.request import Handler
from tidegauge_broker.server.wire.kafka.responses import Response


def of_cluster(operation: Operation) -> Guard:
    """Return a guard of requests that need an operation with the cluster."""

    def guard(request: Any, ask: Ask, handler: Handler) -> Response:
        if not ask.cluster(operation):
            return ask.refused(request, BY_CLUSTER)
        return handler(request, ask.context)

    return guard


def of_cluster_explained(operation: Operation) -> Guard:
    """Return a guard by a cluster operation, with Kafka's sentence."""

    def guard(request: Any, ask: Ask, handler: Handler) -> Response:
        if not ask.cluster(operation):
            return ask.refused(request, BY_CLUSTER, BY_CLUSTER_MESSAGE)
        return handler(request, ask.context)

    return guard


def of_controller(operation: Operation) -> Guard:
    """Return a guard of controller requests: other brokers report NOT_CONTROLLER first."""
    inner = of_cluster(operation)

    def guard(request: Any, ask: Ask, handler: Handler) -> Response:
        if not ask.context.service.is_controller:
            return ask.refused(request, ErrorCode.NOT_CONTROLLER)
        return inner(request, ask, handler)

    return guard


def of_group(operation: Operation) -> Guard:
    """Return a guard of requests that need an operation with their group."""

    def guard(request: Any, ask: Ask, handler: Handler) -> Response:
        if not ask.group(operation, request.group_id):
            return ask.refused(request, BY_GROUP)
        return handler(request, ask.context)

    return guard


def end_txn(request: Any, ask: Ask, handler: Handler) -> Response:
    """EndTxn: WRITE of the transactional id."""
    if not ask.transaction(Operation.WRITE, request.transactional_id):
        return ask.refused(request, BY_TRANSACTION)
    return handler(request, ask.context)


def add_offsets_to_txn(request: Any, ask: Ask, handler: Handler) -> Response:
    """AddOffsetsToTxn: WRITE of the transactional id, then READ of the group."""
    if not ask.transaction(Operation.WRITE, request.transactional_id):
        return ask.refused(request, BY_TRANSACTION)
    if not ask.group(Operation.READ, request.group_id):
        return ask.refused(request, BY_GROUP)
    return handler(request, ask.context)


def init_producer_id(request: Any, ask: Ask, handler: Handler) -> Response:
    """InitProducerId: WRITE of the transactional id; without one IDEMPOTENT_WRITE, or WRITE of any topic (KIP-679)."""
    if request.transactional_id is not None:
        if not ask.transaction(Operation.WRITE, request.transactional_id):
            return ask.refused(request, BY_TRANSACTION)
    elif not ask.cluster(Operation.IDEMPOTENT_WRITE, logs=False) and not ask.acls.allows_somewhere(
        ask.context.caller, Operation.WRITE, ResourceType.TOPIC, "InitProducerId"
    ):
        return ask.refused(request, BY_CLUSTER)
    return handler(request, ask.context)


def write_txn_markers(request: Any, ask: Ask, handler: Handler) -> Response:
    """WriteTxnMarkers: ALTER or CLUSTER_ACTION of the cluster."""
    if not ask.cluster(Operation.ALTER, logs=False) and not ask.cluster(Operation.CLUSTER_ACTION):
        return ask.refused(request, BY_CLUSTER)
    return handler(request, ask.context)


def fetch(request: Any, ask: Ask, handler: Handler) -> Response:
    """Fetch: READ of each topic, also of those in a session; a follower needs CLUSTER_ACTION for all of them."""
    if not is_followers(request, ask.context.version):
        ask.context.may_read = ask.topics(Operation.READ)
    elif not ask.cluster(Operation.CLUSTER_ACTION):
        ask.context.may_read = lambda _: False
    return handler(request, ask.context)


def describe_cluster(request: Any, ask: Ask, handler: Handler) -> Response:
    """DescribeCluster: served to all; the operations are what the caller may do."""
    if not request.include_cluster_authorized_operations:
        return handler(request, ask.context)

    def change(message: Any) -> None:
        if not message.error_code:
            may_describe = ask.cluster(Operation.DESCRIBE)
            operations = ask.operations(ResourceType.CLUSTER, CLUSTER_NAME) if may_describe else 0
            message.cluster_authorized_operations = operations

    return changed(handler(request, ask.context), change)
