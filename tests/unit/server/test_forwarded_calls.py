"""Calls of gRPC that a broker in KRaft mode hands on: in whose name, and that it takes them (KIP-590)."""

from __future__ import annotations

import asyncio
import contextvars
from types import SimpleNamespace
from typing import Any, cast

from tidegauge.kafka.frames import joined, response_frame
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.apis import KRAFT_PROTOCOL
from tidegauge.kafka.kraft.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidegauge.kafka.kraft.messages.envelope import EnvelopeRequest, EnvelopeResponse
from tidegauge.principal import ANONYMOUS, Principal
from tidegauge_broker.server.cluster.kraft.admin import KRaftAdmin
from tidegauge_broker.server.cluster.kraft.forwarding import Forwarding, serialized
from tidegauge_broker.server.service.acting import ACTS_FOR, ACTS_FROM
from tidegauge_broker.server.service.broker_service import BrokerService

ALICE = Principal("User", "alice")


class Channel:
    """Notes the envelopes, and responds to each with an empty CreateTopics response."""

    def __init__(self) -> None:
        self.envelopes: list[EnvelopeRequest] = []

    async def request(self, key: int, message: EnvelopeRequest, timeout_seconds: float) -> EnvelopeResponse:
        del timeout_seconds
        assert key == apis.ENVELOPE
        self.envelopes.append(message)
        version = apis.KRAFT_APIS[apis.CREATE_TOPICS].last
        frame = response_frame(apis.CREATE_TOPICS, version, 0, CreateTopicsResponse(), KRAFT_PROTOCOL)
        return EnvelopeResponse(joined(frame)[4:])


def asked(principal: Principal | None = None, host: str = "") -> EnvelopeRequest:
    """Return the envelope of a request that is made in the name of a client, or in nobody's."""
    channel = Channel()
    forwarding = Forwarding(cast("Any", channel), "broker-1", dict)

    async def work() -> None:
        if principal is not None:
            ACTS_FOR.set(principal)
            ACTS_FROM.set(host)
        await forwarding.ask(apis.CREATE_TOPICS, CreateTopicsRequest([], 1_000))

    contextvars.copy_context().run(asyncio.run, work())
    [envelope] = channel.envelopes
    return envelope


def test_a_request_is_handed_on_in_the_name_of_the_call() -> None:
    """DefaultKafkaPrincipalBuilder.serialize: the controller judges the client's permissions, and not the broker's."""
    envelope = asked(ALICE, "10.0.0.1")
    assert envelope.request_principal == serialized(ALICE)
    assert envelope.client_host_address == bytes([10, 0, 0, 1])
    own = asked()
    assert (own.request_principal, own.client_host_address) == (serialized(ANONYMOUS), bytes([127, 0, 0, 1]))


def test_a_broker_in_kraft_mode_takes_requests_to_the_controller() -> None:
    """Else the guards of gRPC listeners with access control lists refused them with NOT_CONTROLLER."""
    admin = KRaftAdmin(cast("Any", None), cast("Any", None), lambda: 3000)

    def takes(controller: Any, broker_id: int = 1) -> bool:
        service = SimpleNamespace(_controller=controller, broker_id=broker_id)
        return bool(cast("Any", BrokerService.is_controller).fget(service))

    assert takes(admin)
    of_zookeeper = SimpleNamespace(active_controller_id=1, forwards=False)
    assert (takes(of_zookeeper), takes(of_zookeeper, 2)) == (True, False)
