"""DescribeCluster (60), versions 0-1 and in KRaft mode 2: brokers on the request's listener, and the controller.

Version 2 names fenced brokers too, if the request asks for them (KIP-1073).

An endpoint type other than 1 (brokers) gets MISMATCHED_ENDPOINT_TYPE for 2 (controllers), else
UNSUPPORTED_ENDPOINT_TYPE. Source: ``KafkaApis.handleDescribeCluster``, ``AuthHelper.computeDescribeClusterResponse``.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.handlers.common import CLUSTER_OPERATIONS, NOT_ASKED_FOR
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi

_BROKERS, _CONTROLLERS = 1, 2


def handle(request: DescribeClusterRequest, context: Context) -> DescribeClusterResponse:
    """Return the cluster as this broker knows it."""
    if request.endpoint_type == _CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
            "CONTROLLER",
        )
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    view = context.service.metadata(context.caller, (), may_create=False)
    brokers = [DescribeClusterBroker(one.broker_id, one.host, one.port, one.rack) for one in view.brokers]
    if request.include_fenced_brokers:
        fenced = context.service.fenced_brokers(context.caller)
        brokers += [DescribeClusterBroker(one.broker_id, one.host, one.port, one.rack, True) for one in fenced]
    operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED_FOR
    return DescribeClusterResponse(
        cluster_id=view.cluster_id,
        controller_id=-1 if view.controller_id is None else view.controller_id,
        brokers=brokers,
        cluster_authorized_operations=operations,
    )


API = ServedApi(apis.DESCRIBE_CLUSTER, handle, guard=whole.describe_cluster, only_reads=True)
