"""FindCoordinator (10), versions 0-6: the broker that coordinates a group, a transactional id or a share partition.

Any broker responds, from its metadata; the first request creates the internal topic. Share partitions are known from
version 6 on, below they get INVALID_REQUEST; brokers ask for them, which need CLUSTER_ACTION.
Versions 0 to 3 ask for one key, and have the error at the top of the response; from version 4 on each key has its own
(KIP-699). An empty key is a key.
Source: ``KafkaApis.handleFindCoordinatorRequest``, ``getCoordinator``.
"""

from __future__ import annotations

from tidegauge.errors import ERROR_TABLE, ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from tidegauge_broker.server.service.group_service import KeyType
from tidegauge_broker.server.wire.kafka.authorization import listed
from tidegauge_broker.server.wire.kafka.error_forms import Form, Part
from tidegauge_broker.server.wire.kafka.portions import Division
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi

_FIRST_WITH_SEVERAL_KEYS = 4
_FIRST_WITH_SHARE_PARTITIONS = 6
_NO_NODE = (-1, "", -1)


def handle(request: FindCoordinatorRequest, context: Context) -> FindCoordinatorResponse:
    """Return the coordinators."""
    if context.version >= _FIRST_WITH_SEVERAL_KEYS:
        return FindCoordinatorResponse(
            coordinators=[_of_several(_coordinator(key, request.key_type, context)) for key in request.coordinator_keys]
        )
    found = _coordinator(request.key, request.key_type, context)
    message = "NONE" if found.error_code == ErrorCode.NONE else found.error_message
    return FindCoordinatorResponse(
        error_code=found.error_code, error_message=message, node_id=found.node_id, host=found.host, port=found.port
    )


def _coordinator(key: str, key_type: int, context: Context) -> Coordinator:
    if key_type == KeyType.SHARE and context.version < _FIRST_WITH_SHARE_PARTITIONS:
        message = ERROR_TABLE[ErrorCode.INVALID_REQUEST].meaning
        return Coordinator(key, *_NO_NODE, ErrorCode.INVALID_REQUEST, message)
    found = context.service.groups.find_coordinator(context.caller, key_type, key)
    at = found.endpoint
    node_id, host, port = _NO_NODE if at is None else (at.broker_id, at.host, at.port)
    return Coordinator(key, node_id, host, port, found.error, found.message)


def _of_several(found: Coordinator) -> Coordinator:
    """Return a coordinator in several-key form: a missing one needs no sentence."""
    if found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
        found.error_message = ""
    return found


_NO_COORDINATOR = {"node_id": -1, "host": "", "port": -1}
API = ServedApi(
    apis.FIND_COORDINATOR,
    handle,
    guard=listed.find_coordinator,
    form=Form(
        (Part("coordinators", "coordinator_keys", {"key": ""}, values=_NO_COORDINATOR),),
        values=_NO_COORDINATOR,
        is_explained=True,
    ),
    only_reads=True,
    division=Division("coordinator_keys", "coordinators"),
)
