"""The APIs of a controller's listener, by what handles them: the node of the quorum, or this module.

ApiVersions reports what is served and which features this software knows. DescribeCluster names the controllers and the
active one, by which admin clients with ``bootstrap.controllers`` find it. ControllerRegistration becomes a record of
the metadata log: a controller of Apache Kafka registers at whoever leads (KIP-919).
Source: ``ControllerApis``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import API_VERSIONS, DESCRIBE_CLUSTER
from tidegauge.kafka.kraft.apis import CONTROLLER_REGISTRATION, KRAFT_APIS
from tidegauge.kafka.kraft.features import FEATURES, KRAFT_VERSION, LATEST, LEVELS, METADATA_VERSION
from tidegauge.kafka.kraft.messages import api_versions, controller_registration, describe_cluster
from tidegauge.kafka.kraft.record_types import encode_record
from tidegauge.kafka.metadata_records import register_controller_record
from tidegauge.kafka.metadata_records.register_controller_record import RegisterControllerRecord
from tidegauge_broker.server.quorum.driver import QuorumDriver
from tidegauge_broker.server.quorum.listener import Respond, Served
from tidegauge_broker.server.quorum.proposals import Proposals
from tidegauge_broker.server.quorum.requests_in import READERS, Read, Refused, read_request, write_response
from tidegauge_controller.raft.messages import Response
from tidegauge_controller.raft.values import Endpoint

_CONTROLLERS, _BROKERS = 2, 1
"""Endpoint types of DescribeCluster."""
_WITH_ZERO_MINIMA = 4
"""The version of ApiVersions from which features may have 0 as the lowest level (KAFKA-17011)."""
_NO_OPERATIONS = -(2**31)
_MISMATCHED = "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"


def served_apis(
    driver: QuorumDriver, proposals: Proposals, cluster_id: str, node_id: int, endpoint: Endpoint
) -> dict[int, Served]:
    """Return the APIs of a controller's listener, by key."""
    served = {key: Served(key, partial(_ask_node, driver, key)) for key in READERS}
    served[DESCRIBE_CLUSTER] = Served(
        DESCRIBE_CLUSTER, partial(_describe_cluster, driver, cluster_id, node_id, endpoint)
    )
    served[CONTROLLER_REGISTRATION] = Served(CONTROLLER_REGISTRATION, partial(_register_controller, driver, proposals))
    served[API_VERSIONS] = Served(API_VERSIONS, partial(_api_versions, driver, lambda: sorted(served)))
    return served


def _ask_node(driver: QuorumDriver, key: int, version: int, message: Any, respond: Respond) -> None:
    """Give a request to the node."""
    try:
        request = read_request(key, version, message)
    except Refused as refused:
        respond(refused.response)
        return

    def on_response(response: Response, read: Read) -> None:
        respond(write_response(key, response, read))

    driver.request(request, on_response)


def _api_versions(
    driver: QuorumDriver, keys: Callable[[], list[int]], version: int, _message: Any, respond: Respond
) -> None:
    rows = [api_versions.ApiVersion(key, KRAFT_APIS[key].first, KRAFT_APIS[key].last) for key in keys()]
    if version < 0:
        respond(api_versions.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=rows))
        return
    supported = {METADATA_VERSION: (min(LEVELS), LATEST)} | {one.name: (0, one.highest) for one in FEATURES.values()}
    named = [
        api_versions.SupportedFeatureKey(name, lowest, highest)
        for name, (lowest, highest) in sorted(supported.items())
        if lowest > 0 or version >= _WITH_ZERO_MINIMA
    ]
    level = driver.node.history.version
    finalized = [api_versions.FinalizedFeatureKey(KRAFT_VERSION, level, level)] if level > 0 else []
    respond(api_versions.ApiVersionsResponse(api_keys=rows, supported_features=named, finalized_features=finalized))


def _describe_cluster(
    driver: QuorumDriver,
    cluster_id: str,
    node_id: int,
    endpoint: Endpoint,
    _version: int,
    message: describe_cluster.DescribeClusterRequest,
    respond: Respond,
) -> None:
    if message.endpoint_type != _CONTROLLERS:
        is_brokers = message.endpoint_type == _BROKERS
        error = ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_brokers else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        text = _MISMATCHED if is_brokers else f"Unsupported endpoint type {message.endpoint_type}"
        respond(describe_cluster.DescribeClusterResponse(error_code=error, error_message=text, cluster_id=""))
        return
    node = driver.node
    known = {voter_id: node.history.current.endpoint(voter_id) for voter_id in node.history.current.ids}
    known[node_id] = endpoint
    leader_id = node.state.leader_id
    respond(
        describe_cluster.DescribeClusterResponse(
            endpoint_type=_CONTROLLERS,
            cluster_id=cluster_id,
            controller_id=-1 if leader_id is None else leader_id,
            brokers=[
                describe_cluster.DescribeClusterBroker(one, at.host, at.port)
                for one, at in sorted(known.items())
                if at is not None
            ],
            cluster_authorized_operations=_NO_OPERATIONS,
        )
    )


def _register_controller(
    driver: QuorumDriver,
    proposals: Proposals,
    _version: int,
    message: controller_registration.ControllerRegistrationRequest,
    respond: Respond,
) -> None:
    """Propose the record of a registration; respond when it is committed (ClusterControlManager.registerController)."""
    record = RegisterControllerRecord(
        controller_id=message.controller_id,
        incarnation_id=message.incarnation_id,
        zk_migration_ready=message.zk_migration_ready,
        end_points=[
            register_controller_record.ControllerEndpoint(one.name, one.host, one.port, one.security_protocol)
            for one in message.listeners
        ],
        features=[
            register_controller_record.ControllerFeature(one.name, one.min_supported_version, one.max_supported_version)
            for one in message.features
        ],
    )

    def decided(error: ErrorCode, sentence: str) -> None:
        text = None if error is ErrorCode.NONE else sentence
        respond(controller_registration.ControllerRegistrationResponse(error_code=error, error_message=text))

    driver.give(proposals.propose([encode_record(record, 0)], driver.node.state.epoch, decided))
