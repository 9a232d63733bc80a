"""UpdateMetadata (6), versions 0-8: the controller fills this broker's metadata cache.

Served on every listener that speaks Kafka's protocol, to anyone, as by a Kafka broker without an authorizer.
Source: ``KafkaApis.handleUpdateMetadataRequest``.
"""

from __future__ import annotations

from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.kafka import apis
from tidegauge.kafka.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_controller.kafka_wire import update_metadata


def handle(message: UpdateMetadataRequest, context: Context) -> UpdateMetadataResponse:
    """Take over the metadata."""
    request = update_metadata.from_request(message, context.service.control_plane_listener)
    return UpdateMetadataResponse(context.service.update_metadata(request))


API = ServedApi(apis.UPDATE_METADATA, handle, guard=whole.of_cluster(Operation.CLUSTER_ACTION), is_exempt=True)
