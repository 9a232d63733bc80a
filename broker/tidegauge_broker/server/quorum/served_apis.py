"""The APIs of a controller's listener, by what handles them: the node of the quorum, the controller, or this module.

ApiVersions reports the served APIs, and the features that are supported and finalised. DescribeCluster names the
controllers and the active one, by which admin clients with ``bootstrap.controllers`` find it (KIP-919).
Source: ``ControllerApis``, ``SimpleApiVersionManager``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.apis import (
    ADD_RAFT_VOTER,
    API_VERSIONS,
    CONTROLLER_REGISTRATION,
    DESCRIBE_CLUSTER,
    DESCRIBE_QUORUM,
    KRAFT_APIS,
    REMOVE_RAFT_VOTER,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from tidegauge.kafka.kraft.features import KRAFT_VERSION, METADATA_VERSION
from tidegauge.kafka.kraft.messages import (
    api_versions,
    controller_registration,
    describe_cluster,
    sasl_authenticate,
    sasl_handshake,
)
from tidegauge.kafka.topic_ids import topic_id_text
from tidegauge_broker.server.quorum.calls import Call, Served
from tidegauge_broker.server.quorum.controller import (
    access_served,
    brokers_served,
    envelope,
    partitions_served,
    settings_served,
    topics_served,
)
from tidegauge_broker.server.quorum.controller.authorization import Authorization
from tidegauge_broker.server.quorum.controller.events import WriteEvent
from tidegauge_broker.server.quorum.controller.features import FEATURE_RANGES
from tidegauge_broker.server.quorum.controller.large_requests import prepared
from tidegauge_broker.server.quorum.controller.mutation_quotas import MutationQuotas
from tidegauge_broker.server.quorum.controller.quorum_controller import QuorumController
from tidegauge_broker.server.quorum.driver import QuorumDriver
from tidegauge_broker.server.quorum.node_settings import NodeSettings
from tidegauge_broker.server.quorum.requests_in import READERS, Read, Refused, read_request, write_response
from tidegauge_controller.metadata.decisions.registration import register_controller
from tidegauge_controller.metadata.image import FeatureRange, NodeEndpoint, RegisteredController
from tidegauge_controller.raft.messages import Request, Response

_CONTROLLERS, _BROKERS = 2, 1
"""Endpoint types of DescribeCluster."""
_WITH_ZERO_MINIMA = 4
"""The version of ApiVersions from which features may have 0 as the lowest level (KAFKA-17011)."""
_NO_OPERATIONS = -(2**31)
_MISMATCHED = "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"
_READING: set[asyncio.Task[None]] = set()
"""Large requests that are being read."""
_NOT_NOW = "SaslAuthenticate request received after successful authentication"
_FORWARDED = {DESCRIBE_QUORUM, ADD_RAFT_VOTER, REMOVE_RAFT_VOTER}
"""APIs of the quorum that brokers forward for their clients."""


def served_apis(driver: QuorumDriver, controller: QuorumController, settings: NodeSettings) -> dict[int, Served]:
    """Return the APIs of a controller's listener, by key.

    Raises:
        TidegaugeError: INVALID_CONFIG, ``super.users`` names no principal.
    """
    handlers: dict[int, Served] = {}
    values = settings.values
    try:
        authorization = Authorization(values, lambda: controller.image)
    except ValueError as problem:
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, f"super.users: {problem}") from None
    controller.on_image = authorization.keep_up

    def add(found: Iterable[Served]) -> None:
        handlers.update({one.key: authorization.guarded(one) for one in found})

    add(Served(key, partial(_ask_node, driver), is_forwarded=key in _FORWARDED) for key in READERS)
    add(brokers_served.served(controller, values.integer("broker.heartbeat.interval.ms") // 2))
    quotas = MutationQuotas(values, lambda: controller.image, lambda: controller.now_ms)
    add(topics_served.served(controller, authorization, quotas, may_delete=values.flag("delete.topic.enable")))
    add(partitions_served.served(controller))
    add(settings_served.served(controller, authorization))
    add(access_served.served(controller, authorization))
    add(envelope.served(handlers))
    add(
        (
            Served(DESCRIBE_CLUSTER, partial(_describe_cluster, driver, controller, settings)),
            Served(CONTROLLER_REGISTRATION, prepared(controller, _register_controller)),
            Served(API_VERSIONS, partial(_api_versions, controller, lambda: sorted(handlers))),
            Served(SASL_HANDSHAKE, _handshake),
            Served(SASL_AUTHENTICATE, _authenticate),
        )
    )
    return handlers


def _ask_node(driver: QuorumDriver, call: Call) -> None:
    """Give a request to the node; a large one, which can only be refused, is read in a thread."""
    if call.is_large:
        _READING.add(task := asyncio.get_running_loop().create_task(_ask_node_later(driver, call)))
        task.add_done_callback(_READING.discard)
    else:
        _give(driver, call, _read(call))


async def _ask_node_later(driver: QuorumDriver, call: Call) -> None:
    _give(driver, call, await asyncio.to_thread(_read, call))


def _read(call: Call) -> Request | Refused:
    try:
        return read_request(call.key, call.version, call.message)
    except Refused as refused:
        return refused


def _give(driver: QuorumDriver, call: Call, request: Request | Refused) -> None:
    if isinstance(request, Refused):
        call.respond(request.response)
        return

    def on_response(response: Response, read: Read) -> None:
        call.respond(write_response(call.key, response, read))

    driver.request(request, on_response)


def _api_versions(controller: QuorumController, keys: Callable[[], list[int]], call: Call) -> None:
    rows = [api_versions.ApiVersion(key, KRAFT_APIS[key].first, KRAFT_APIS[key].last) for key in keys()]
    if call.version < 0:
        call.respond(api_versions.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=rows))
        return
    image = controller.image
    levels = {KRAFT_VERSION: controller.kraft_version, METADATA_VERSION: image.metadata_version or 0, **image.features}
    response = api_versions.ApiVersionsResponse(
        api_keys=rows,
        supported_features=[
            api_versions.SupportedFeatureKey(name, levels.first, levels.last)
            for name, levels in sorted(FEATURE_RANGES.items())
            if levels.first > 0 or call.version >= _WITH_ZERO_MINIMA
        ],
        finalized_features=[
            api_versions.FinalizedFeatureKey(name, level, level) for name, level in sorted(levels.items()) if level > 0
        ],
    )
    if not image.is_empty:
        response.finalized_features_epoch = image.provenance.offset
    call.respond(response)


def _handshake(call: Call) -> None:
    """Refuse: the listener has no SASL, or the client has authenticated itself."""
    call.respond(sasl_handshake.SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE))


def _authenticate(call: Call) -> None:
    """Refuse, as above."""
    call.respond(sasl_authenticate.SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, _NOT_NOW))


def _describe_cluster(driver: QuorumDriver, controller: QuorumController, settings: NodeSettings, call: Call) -> None:
    message: describe_cluster.DescribeClusterRequest = call.message
    if message.endpoint_type != _CONTROLLERS:
        is_brokers = message.endpoint_type == _BROKERS
        error = ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_brokers else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        text = _MISMATCHED if is_brokers else f"Unsupported endpoint type {message.endpoint_type}"
        call.respond(describe_cluster.DescribeClusterResponse(error_code=error, error_message=text, cluster_id=""))
        return
    node = driver.node
    known = {voter_id: node.history.current.endpoint(voter_id) for voter_id in node.history.current.ids}
    known[settings.node_id] = settings.endpoints[0]
    leader_id = node.state.leader_id
    call.respond(
        describe_cluster.DescribeClusterResponse(
            endpoint_type=_CONTROLLERS,
            cluster_id=controller.settings.cluster_id,
            controller_id=-1 if leader_id is None else leader_id,
            brokers=[
                describe_cluster.DescribeClusterBroker(one, at.host, at.port)
                for one, at in sorted(known.items())
                if at is not None
            ],
            cluster_authorized_operations=_NO_OPERATIONS,
        )
    )


def _register_controller(call: Call) -> WriteEvent:
    """Write the registration of another controller (ClusterControlManager.registerController)."""
    message: controller_registration.ControllerRegistrationRequest = call.message
    registration = RegisteredController(
        message.controller_id,
        topic_id_text(message.incarnation_id),
        tuple(NodeEndpoint(one.name, one.host, one.port, one.security_protocol) for one in message.listeners),
        {one.name: FeatureRange(one.min_supported_version, one.max_supported_version) for one in message.features},
        message.zk_migration_ready,
    )

    def done(_: None) -> None:
        call.respond(controller_registration.ControllerRegistrationResponse(error_message=None))

    return WriteEvent("registerController", lambda *_: register_controller(registration), done, call.refuse)
