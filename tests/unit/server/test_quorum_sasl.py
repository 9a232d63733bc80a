"""A controller's listener with SASL: the APIs before and after the authentication, and how a failure ends it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from quorum_peer import Listening, Wire, give

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import API_VERSIONS
from tidegauge.kafka.frames import codec_of, joined
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.apis import KRAFT_PROTOCOL, SASL_AUTHENTICATE, SASL_HANDSHAKE
from tidegauge.kafka.kraft.messages import api_versions, describe_quorum, sasl_authenticate, sasl_handshake
from tidegauge.principal import Principal
from tidegauge_broker.server.quorum.node_settings import NodeSettings, read_node_settings
from tidegauge_broker.server.quorum.sasl_connection import QuorumSaslConnection
from tidegauge_broker.server.quorum.way_to_controllers import login_of, way_to_controllers
from tidegauge_broker.server.wire.sasl_listener import SaslListener

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
NODE = {
    "process.roles": "controller",
    "node.id": "3000",
    "listeners": "CONTROLLER://127.0.0.1:9393",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9393",
}
SECURED = NODE | {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": f'{MODULE} required username="n" password="p" user_n="p";',
    "sasl.mechanism.controller.protocol": "PLAIN",
    "connection.failed.authentication.delay.ms": "0",
}


def node(**changes: str) -> NodeSettings:
    """A controller whose settings have underscores in the place of dots."""
    return read_node_settings(SECURED | {name.replace("_", "."): text for name, text in changes.items()}, "localhost")


class ClosingWire(Wire):
    """Says when it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = asyncio.Event()

    def close(self) -> None:
        self.is_closed = True
        self.closed.set()


class Client:
    """A client of one connection."""

    def __init__(self, **changes: str) -> None:
        self.now_ms = 1_000
        self.listening, self.wire = Listening(), ClosingWire()
        sasl = SaslListener("CONTROLLER", node(**changes).values, lambda *_: None)
        self.connection = QuorumSaslConnection(self.listening, lambda: 0.0, sasl, lambda: self.now_ms)
        self.connection.connection_made(self.wire)  # type: ignore[arg-type]

    def ask(self, key: int, version: int, message: Any) -> Any:
        """Send a request; return the response, None if there is none yet."""
        self.wire.written = b""
        codec = codec_of(key, version, KRAFT_PROTOCOL)
        give(self.connection, joined(codec.request_frame(7, "test", message)))
        return self.response(key, version)

    def response(self, key: int, version: int) -> Any:
        frame = memoryview(self.wire.written)[4:]
        if not frame:
            return None
        codec = codec_of(key, version, KRAFT_PROTOCOL)
        return codec.decode_response(frame, codec.read_response_header(frame)[1])[0]

    def log_in(self, password: str) -> Any:
        """Log in as the user n; return the response to the token."""
        shaken = self.ask(SASL_HANDSHAKE, 1, sasl_handshake.SaslHandshakeRequest("PLAIN"))
        assert shaken.error_code == 0
        token = f"\0n\0{password}".encode()
        return self.ask(SASL_AUTHENTICATE, 2, sasl_authenticate.SaslAuthenticateRequest(token))

    def describe(self) -> None:
        """Send a request of the quorum."""
        self.ask(apis.DESCRIBE_QUORUM, 2, describe_quorum.DescribeQuorumRequest())


@pytest.fixture(autouse=True)
def of_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wire of the tests counts as a transport."""
    monkeypatch.setattr("tidegauge_broker.server.quorum.connection.asyncio.Transport", Wire)


async def test_requests_are_handled_for_the_principal_that_has_logged_in() -> None:
    client = Client()
    assert client.log_in("p").error_code == 0
    client.describe()
    [call] = client.listening.asked
    assert call.principal == Principal("User", "n")


async def test_a_request_before_the_authentication_ends_the_connection_unhandled() -> None:
    """Of the quorum's own APIs too: the authenticator knows the controllers' table of APIs."""
    client = Client()
    client.describe()
    await client.wire.closed.wait()
    assert client.listening.asked == []


async def test_api_versions_is_responded_to_before_the_authentication() -> None:
    """A client learns by it that the listener serves SASL (KIP-152)."""
    client = Client()
    client.ask(API_VERSIONS, 4, api_versions.ApiVersionsRequest("test", "1"))
    [call] = client.listening.asked
    call.respond(api_versions.ApiVersionsResponse())
    assert client.response(API_VERSIONS, 4).error_code == 0
    assert client.log_in("p").error_code == 0


async def test_a_wrong_password_is_responded_to_after_the_delay_and_nothing_more_is_read() -> None:
    client = Client()
    assert client.log_in("wrong") is None
    assert not client.wire.is_reading
    await client.wire.closed.wait()
    response = client.response(SASL_AUTHENTICATE, 2)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_a_session_that_has_ended_serves_nothing_and_a_renewed_one_does() -> None:
    """KIP-368."""
    client = Client(connections_max_reauth_ms="5000")
    client.log_in("p")
    client.now_ms += 4_000
    assert client.log_in("p").session_lifetime_ms == 5_000
    client.now_ms += 4_000
    client.describe()
    assert len(client.listening.asked) == 1
    client.listening.asked[0].respond(describe_quorum.DescribeQuorumResponse())
    client.now_ms += 1_001
    client.describe()
    assert len(client.listening.asked) == 1
    assert client.wire.is_closed


def test_a_listeners_protocol_is_that_of_the_map_then_that_of_its_name() -> None:
    assert node().protocol == "SASL_PLAINTEXT"
    plain = NODE | {"listener.security.protocol.map": "OTHER:SSL"}
    assert read_node_settings(plain, "localhost").protocol == "PLAINTEXT"
    named = NODE | {"listeners": "SSL://127.0.0.1:9393", "controller.listener.names": "SSL"}
    assert read_node_settings(named, "localhost").protocol == "SSL"


def test_an_unknown_protocol_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(TidegaugeError, match="write one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"):
        node(listener_security_protocol_map="CONTROLLER:TLS")


def test_a_node_logs_in_with_the_credentials_of_the_controllers_listener() -> None:
    login = login_of(node())
    assert (login.mechanism, login.options["username"]) == ("PLAIN", "n")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sasl_mechanism_controller_protocol": "GSSAPI"}, "sasl.mechanism.controller.protocol=GSSAPI"),
        ({"sasl_mechanism_controller_protocol": "SCRAM-SHA-256"}, "scram-sha-256.sasl.jaas.config"),
        ({"listener_security_protocol_map": "CONTROLLER:SASL_SSL", "ssl_keystore_location": "/none"}, "/none"),
    ],
)
def test_a_way_that_is_not_whole_is_refused_with_the_setting(changes: dict[str, str], sentence: str) -> None:
    """Before anything is dialled: the node would try for ever."""
    with pytest.raises(TidegaugeError, match=sentence):
        way_to_controllers(node(**changes))
