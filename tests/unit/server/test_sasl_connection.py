"""A connection of a listener with SASL: the APIs at each stage, and how a failure ends it."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from kafka_peer import Client, Listener, Transport

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import API_VERSIONS, METADATA, PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE
from tidegauge.kafka.frames import decode, joined, read_response_header, request_frame
from tidegauge.kafka.messages.api_versions import ApiVersionsRequest
from tidegauge.kafka.messages.metadata import MetadataRequest, MetadataResponse
from tidegauge.kafka.messages.produce import ProduceRequest
from tidegauge.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from tidegauge.kafka.messages.sasl_handshake import SaslHandshakeRequest
from tidegauge.principal import Principal
from tidegauge.settings import Values, parse_broker_settings
from tidegauge.v1 import common_pb2, lab_pb2
from tidegauge_broker.log.lab_disk import DiskFaults
from tidegauge_broker.security.sasl.plain import PlainExchange
from tidegauge_broker.server.lab.fault_table import FaultTable
from tidegauge_broker.server.lab.gate import LabGate
from tidegauge_broker.server.wire.kafka.sasl_connection import SaslConnection
from tidegauge_broker.server.wire.kafka.served import HANDLERS
from tidegauge_broker.server.wire.sasl_listener import SaslListener

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
OF_PLAIN = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    "listener.name.outside.plain.sasl.jaas.config": JAAS,
}


def values(**more: str) -> Values:
    return parse_broker_settings(OF_PLAIN | {name.replace("__", "."): text for name, text in more.items()})[0]


class ClosingTransport(Transport):
    """Says when it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = asyncio.Event()

    def close(self) -> None:
        super().close()
        self.closed.set()


class Clock:
    now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


class SaslClient(Client):
    """A client of a listener with SASL."""

    def __init__(self, listener: Listener, settings: Values, clock: Clock) -> None:
        self.transport = self.closing = ClosingTransport()
        sasl = SaslListener("OUTSIDE", settings, lambda *_: None)
        self.connection = SaslConnection(listener, clock, sasl)
        self.connection.connection_made(self.transport)
        self._read = 0

    def ask(self, key: int, version: int, message: Any) -> Any:
        """Send a request; return its response, None if none has come yet."""
        self.send(joined(request_frame(key, version, 3, "test", message)))
        return self.response(key, version)

    def response(self, key: int, version: int) -> Any:
        found = self.responses()
        if not found:
            return None
        [(_, frame)] = found
        return decode(key, version, frame, read_response_header(key, version, frame)[1], response=True)[0]

    def authenticate(self, token: bytes = b"\0alice\0secret", mechanism: str = "PLAIN") -> Any:
        assert self.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism)).error_code == 0
        return self.ask(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(token))


@pytest.fixture
def listener() -> Listener:
    made = Listener()
    made.handlers = {
        METADATA: lambda *_: MetadataResponse(cluster_id="served"),
        API_VERSIONS: HANDLERS[API_VERSIONS],
        SASL_HANDSHAKE: HANDLERS[SASL_HANDSHAKE],
    }
    return made


def asks_for_metadata(client: SaslClient) -> Any:
    return client.ask(METADATA, 9, MetadataRequest())


async def ended(client: SaslClient) -> None:
    async with asyncio.timeout(10):
        await client.closing.closed.wait()


def test_a_connection_acts_for_the_principal_that_it_has_proved_to_be(listener: Listener) -> None:
    client = SaslClient(listener, values(), Clock())
    assert client.connection.caller.principal == Principal("User", "ANONYMOUS")
    assert client.ask(API_VERSIONS, 3, ApiVersionsRequest("test", "1")).error_code == 0
    assert client.authenticate().error_code == 0
    assert client.connection.caller.principal == Principal("User", "alice")
    assert asks_for_metadata(client).cluster_id == "served"


async def test_the_response_to_a_failure_waits_for_the_delay_and_nothing_is_read_meanwhile(
    listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    """KafkaChannel mutes, Selector.DelayedAuthenticationFailureClose."""
    client = SaslClient(listener, values(connection__failed__authentication__delay__ms="40"), Clock())
    began = asyncio.get_running_loop().time()
    with caplog.at_level("INFO", logger="tidegauge.kafka"):
        assert client.authenticate(b"\0alice\0wrong") is None
        assert not client.transport.is_reading
        assert asks_for_metadata(client) is None
        await ended(client)
    assert asyncio.get_running_loop().time() - began >= 0.04
    response = client.response(SASL_AUTHENTICATE, 2)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.transport.ended == "closed"
    [line] = caplog.messages
    assert line == "Failed authentication with /10.0.0.9 (Authentication failed: Invalid username or password)"


async def test_another_api_before_is_refused_and_one_among_the_tokens_gets_34(listener: Listener) -> None:
    settings = values(connection__failed__authentication__delay__ms="0")
    client = SaslClient(listener, settings, Clock())
    assert asks_for_metadata(client) is None
    await ended(client)
    assert client.responses() == []
    other = SaslClient(listener, settings, Clock())
    other.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest("PLAIN"))
    produce = ProduceRequest(acks=1, timeout_ms=1)
    assert other.ask(PRODUCE, 9, produce) is None
    await ended(other)
    assert other.response(PRODUCE, 9) is not None


async def test_a_client_that_leaves_before_the_delay_is_over_is_forgotten(listener: Listener) -> None:
    client = SaslClient(listener, values(connection__failed__authentication__delay__ms="5"), Clock())
    client.authenticate(b"\0alice\0wrong")
    client.connection.connection_lost(None)
    other = SaslClient(listener, values(connection__failed__authentication__delay__ms="5"), Clock())
    other.authenticate(b"\0alice\0wrong")
    await ended(other)  # so the delay of the first is over too
    assert client.responses() == []
    assert client.transport.ended is None
    assert listener.gone == [client.connection]


def test_an_expired_session_closes_unless_the_client_authenticates_itself_again(listener: Listener) -> None:
    """Processor.processCompletedReceives; KIP-368."""
    clock = Clock()
    settings = values(listener__name__outside__plain__connections__max__reauth__ms="5000")
    client, other = SaslClient(listener, settings, clock), SaslClient(listener, settings, clock)
    for one in (client, other):
        assert one.authenticate().session_lifetime_ms == 5000
    clock.now_ms += 4_000
    assert client.authenticate().session_lifetime_ms == 5000
    clock.now_ms += 1_001
    assert asks_for_metadata(client).cluster_id == "served"
    assert asks_for_metadata(other) is None
    assert other.transport.ended == "closed"


def test_sessions_without_an_end_take_a_handshake_for_any_other_request(listener: Listener) -> None:
    client = SaslClient(listener, values(), Clock())
    client.authenticate()
    again = client.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest("PLAIN"))
    assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert asks_for_metadata(client).cluster_id == "served"


def test_before_the_authentication_frames_are_small(listener: Listener) -> None:
    client = SaslClient(listener, values(sasl__server__max__receive__size="100"), Clock())
    client.send((101).to_bytes(4, "big"))
    assert client.transport.ended == "closed"


# Settings


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ({}, "served are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "PLAIN needs its users"),
        ({"listener.name.outside.sasl.enabled.mechanisms": "SCRAM-SHA-1"}, "would have SCRAM-SHA-1"),
        ({**OF_PLAIN, "listener.name.outside.plain.sasl.jaas.config": 'x required p="secret'}, "no counterpart"),
        (
            {
                **OF_PLAIN,
                "listener.name.outside.oauthbearer.sasl.jaas.config": (
                    "x required unsecuredValidatorAllowableClockSkewMs=x;"
                ),
            },
            "must be a number of ms",
        ),
    ],
)
def test_settings_by_which_no_client_could_authenticate_are_refused_without_a_secret(
    texts: dict[str, str], sentence: str
) -> None:
    with pytest.raises(TidegaugeError, match=sentence) as caught:
        SaslListener("OUTSIDE", parse_broker_settings(texts)[0], lambda *_: None)
    assert "secret" not in caught.value.message


def test_a_listener_has_mechanisms_of_its_own() -> None:
    texts = {"sasl.enabled.mechanisms": "SCRAM-SHA-512", "listener.name.inside.sasl.enabled.mechanisms": "OAUTHBEARER"}
    settings, unknown = parse_broker_settings(texts)
    assert not unknown
    assert SaslListener("INSIDE", settings, lambda *_: None).enabled == ("OAUTHBEARER",)
    assert SaslListener("OUTSIDE", settings, lambda *_: None).enabled == ("SCRAM-SHA-512",)
    assert isinstance(SaslListener("OUTSIDE", values(), lambda *_: None).exchange("PLAIN"), PlainExchange)


# The lab's faults


class Faulty:
    """A listener with SASL behind the lab's gate, and its faults."""

    def __init__(self, listener: Listener) -> None:
        self.faults = FaultTable(0, DiskFaults(sleep=lambda _: None))
        listener.gate = LabGate(self.faults)
        self.client = SaslClient(listener, values(connection__failed__authentication__delay__ms="0"), Clock())

    def fails(self, rpc: str, error: str, **more: Any) -> None:
        code = common_pb2.ErrorCode.Value(f"ERROR_CODE_{error}")
        self.faults.set(lab_pb2.LabFault(error=lab_pb2.ErrorFault(rpc=rpc, error=code, **more)))

    async def ask(self, key: int, version: int, message: Any) -> Any:
        """Return the response; None: the connection was closed without one."""
        self.client.send(joined(request_frame(key, version, 3, "test", message)))
        transport = self.client.transport
        before = len(transport.written)
        while len(transport.written) == before and transport.ended is None:  # noqa: ASYNC110 - turns of the loop
            await asyncio.sleep(0)
        return self.client.response(key, version)

    async def shake(self) -> Any:
        return await self.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest("PLAIN"))

    async def prove(self) -> Any:
        return await self.ask(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(b"\0alice\0secret"))


@pytest.fixture
async def faulty(listener: Listener) -> Faulty:
    return Faulty(listener)


@pytest.mark.parametrize(
    ("rpc", "error"),
    [("SaslHandshake", "UNSUPPORTED_SASL_MECHANISM"), ("SaslAuthenticate", "SASL_AUTHENTICATION_FAILED")],
)
@pytest.mark.parametrize("after_effect", [False, True])
async def test_a_fault_refuses_right_credentials(
    faulty: Faulty, rpc: str, error: str, after_effect: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The response has the error, and the connection closes after the delay, as with wrong ones."""
    faulty.fails(rpc, error, after_effect=after_effect)
    with caplog.at_level("INFO", logger="tidegauge.kafka"):
        response = await faulty.shake()
        if rpc == "SaslAuthenticate":
            assert response.error_code == 0
            response = await faulty.prove()
        await ended(faulty.client)
    assert response.error_code == ErrorCode[error]
    assert caplog.messages == [f"Failed authentication with /10.0.0.9 (injected by the lab: {error})"]
    assert faulty.client.connection.caller.principal == Principal("User", "ANONYMOUS")


async def test_a_fault_that_means_other_requests_lets_an_authentication_pass(faulty: Faulty) -> None:
    faulty.fails("Produce", "TOPIC_AUTHORIZATION_FAILED")
    assert (await faulty.shake()).error_code == 0
    assert (await faulty.prove()).error_code == 0
    assert faulty.client.connection.caller.principal == Principal("User", "alice")


async def test_an_unknown_version_of_a_request_of_sasl_closes_behind_a_fault_too(
    faulty: Faulty, caplog: pytest.LogCaptureFixture
) -> None:
    """As it does without faults: Kafka's Processor closes what it cannot parse."""
    faulty.fails("SaslHandshake", "UNSUPPORTED_SASL_MECHANISM")
    body = struct.pack(">hhih4s", SASL_HANDSHAKE, 9, 3, 4, b"test")
    with caplog.at_level("INFO", logger="tidegauge.kafka"):
        faulty.client.send(struct.pack(">i", len(body)) + body)
        await ended(faulty.client)
    assert caplog.messages == ["Closing the connection of /10.0.0.9: API key 17 with version 9"]
    assert not faulty.client.transport.written


async def test_what_comes_behind_a_request_of_sasl_waits_for_it(faulty: Faulty) -> None:
    """A client may send its first request together with its last token."""
    faulty.fails("Produce", "TOPIC_AUTHORIZATION_FAILED")
    assert (await faulty.shake()).error_code == 0
    first = joined(request_frame(SASL_AUTHENTICATE, 2, 3, "test", SaslAuthenticateRequest(b"\0alice\0secret")))
    faulty.client.send(first + joined(request_frame(METADATA, 9, 4, "test", MetadataRequest())))
    found: list[Any] = []
    while len(found) < 2:
        await asyncio.sleep(0)
        found += faulty.client.responses()
    assert [correlation_id for correlation_id, _ in found] == [3, 4]


async def test_a_fault_ends_a_session(faulty: Faulty, caplog: pytest.LogCaptureFixture) -> None:
    """The next request closes the connection, as the first after the end of a session does (KIP-368)."""
    assert faulty.client.authenticate().error_code == 0
    faulty.fails("Metadata", "SASL_AUTHENTICATION_FAILED")
    with caplog.at_level("INFO", logger="tidegauge.kafka"):
        assert await faulty.ask(METADATA, 9, MetadataRequest()) is None
    assert faulty.client.transport.ended == "closed"
    assert caplog.messages == ["Closing the connection of /10.0.0.9: injected by the lab: its SASL session has ended"]
