"""The client's side of SASL against the server's, and a channel that authenticates itself, once and again."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hashlib
import hmac
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.memory_peer import MemoryPeer

from tidegauge.cluster_metadata.credentials import ScramCredential
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import HEARTBEAT, SASL_AUTHENTICATE, SASL_HANDSHAKE
from tidegauge.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidegauge.kafka.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidegauge.kafka.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidegauge.kafka_channel import KafkaChannel, NotAuthenticated
from tidegauge.sasl_client import HASHES, MECHANISMS, AuthenticationFailed, Login, renewed_after_ms
from tidegauge.security import Security
from tidegauge.settings import parse_broker_settings
from tidegauge_broker.security.sasl.exchange import AuthenticationRefused, Exchange, InvalidCredentials
from tidegauge_broker.security.sasl.oauthbearer import OauthBearerExchange, TokenRules
from tidegauge_broker.security.sasl.plain import PlainExchange
from tidegauge_broker.security.sasl.scram import ScramExchange
from tidegauge_broker.server.wire.sasl_listener import SaslListener

NOW_MS = 1_700_000_000_999
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
NEVER_SECONDS = 60.0
KNOWN = "broker-secret"


def credential(mechanism: str, password: str, iterations: int = 4096) -> ScramCredential:
    name = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password.encode(), b"salt", iterations)
    stored = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    return ScramCredential(b"salt", stored, hmac.digest(salted, b"Server Key", name), iterations)


def server(mechanism: str, user: str, password: str) -> Exchange:
    """The server's side, which knows one user."""
    if mechanism == "PLAIN":
        return PlainExchange({user: password})
    if mechanism == "OAUTHBEARER":
        return OauthBearerExchange(TokenRules())
    of_user = functools.partial({user: credential(mechanism, password)}.get)
    return ScramExchange(mechanism, of_user, "server-nonce")


def login(mechanism: str, user: str = "broker", word: str = KNOWN) -> Login:
    if mechanism == "OAUTHBEARER":
        return Login(mechanism, {"unsecuredLoginStringClaim_sub": user})
    return Login(mechanism, {"username": user, "password": word})


def converse(client: Login, at: Exchange) -> str | None:
    """Return whom the server has authenticated, after both have exchanged their tokens."""
    exchange = client.exchange(NOW_MS, "client-nonce")
    token = exchange.respond(None)
    while token is not None:
        token = exchange.respond(at.evaluate(token, NOW_MS))
    return at.principal_name


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["broker", "a,b=c"])
def test_both_sides_understand_each_other(mechanism: str, user: str) -> None:
    assert converse(login(mechanism, user), server(mechanism, user, "broker-secret")) == user


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused(mechanism: str) -> None:
    with pytest.raises((AuthenticationRefused, InvalidCredentials)):
        converse(login(mechanism, word="wrong"), server(mechanism, "broker", "broker-secret"))


def test_a_token_that_has_expired_is_acknowledged_and_refused() -> None:
    """RFC 7628, section 3.2.3: the error is a challenge, to which the client sends one byte."""
    expired = Login("OAUTHBEARER", {"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginLifetimeSeconds": "-1"})
    with pytest.raises(AuthenticationRefused, match="invalid_token"):
        converse(expired, server("OAUTHBEARER", "", ""))


def test_the_clients_scram_is_that_of_the_rfc() -> None:
    """The example of RFC 7677, section 3."""
    exchange = Login("SCRAM-SHA-256", {"username": "user", "password": "pencil"}).exchange(0, "rOprNGfwEbeRWgbNEkqO")
    assert exchange.respond(None) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    final = exchange.respond(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert final == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    assert exchange.respond(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=other,s=c2FsdA==,i=4096",
        b"r=client-nonce,s=c2FsdA==,i=4096",  # the server has added nothing
        b"r=client-nonce1,s=,i=4096",
        b"r=client-nonce1,s=c2FsdA==,i=4095",
        b"r=client-nonce1,s=c2FsdA==,i=99999999999",
        b"\xff\xfe",
    ],
)
def test_a_server_that_does_not_keep_to_scram_gets_no_proof(challenge: bytes) -> None:
    exchange = login("SCRAM-SHA-256").exchange(NOW_MS, "client-nonce")
    exchange.respond(None)
    with pytest.raises(AuthenticationFailed):
        exchange.respond(challenge)


@pytest.mark.parametrize("response", [b"v=" + base64.b64encode(b"x" * 32), b"e=other-error", b"", b"v=%%"])
def test_a_server_that_does_not_know_the_password_is_not_believed(response: bytes) -> None:
    """RFC 5802, section 3: the client authenticates the server too."""
    exchange = login("SCRAM-SHA-256").exchange(NOW_MS, "client-nonce")
    exchange.respond(None)
    exchange.respond(b"r=client-nonce1,s=c2FsdA==,i=4096")
    with pytest.raises(AuthenticationFailed):
        exchange.respond(response)


@given(st.binary(max_size=80))
def test_no_challenge_ends_in_another_error(challenge: bytes) -> None:
    for mechanism in MECHANISMS:
        exchange = login(mechanism).exchange(NOW_MS, "client-nonce")
        exchange.respond(None)
        with contextlib.suppress(AuthenticationFailed):
            assert isinstance(exchange.respond(challenge), bytes | None)


@pytest.mark.parametrize(
    ("mechanism", "entry", "why"),
    [
        ("GSSAPI", "x required;", "no SASL mechanism GSSAPI"),
        ("PLAIN", None, r"sasl\.jaas\.config is missing"),
        ("PLAIN", f'{MODULE} required username="a";', "no password"),
        ("PLAIN", f'{MODULE} required password="a"', "not terminated"),
        ("OAUTHBEARER", "x required;", "unsecuredLoginStringClaim_sub"),
        ("OAUTHBEARER", 'x required unsecuredLoginNumberClaim_n="y" unsecuredLoginStringClaim_sub="a";', "no number"),
    ],
)
def test_credentials_that_can_not_work_are_refused_at_the_start(mechanism: str, entry: str | None, why: str) -> None:
    with pytest.raises(TidegaugeError, match=why):
        Login.of(mechanism, entry)


def test_no_secret_is_printed() -> None:
    made = Login.of("PLAIN", f'{MODULE} required username="a" password="a-secret";')
    assert "a-secret" not in f"{made!r} {made} {Security(login=made)!r}"


@pytest.mark.parametrize(("lifetime_ms", "first", "last"), [(0, None, None), (1000, 850, 950), (-1, None, None)])
def test_a_session_is_renewed_before_it_ends(lifetime_ms: int, first: int | None, last: int | None) -> None:
    """KIP-368: after 85 to 95 % of its time."""
    assert (renewed_after_ms(lifetime_ms, 0.0), renewed_after_ms(lifetime_ms, 1.0)) == (first, last)


# The broker's own credentials


def listener(**settings: str) -> SaslListener:
    prefix = "listener.name.internal."
    texts = {
        "sasl.enabled.mechanisms": "PLAIN",
        f"{prefix}plain.sasl.jaas.config": f'{MODULE} required username="broker" password="b" user_broker="b";',
    }
    texts |= {name.replace("__", "."): text for name, text in settings.items()}
    return SaslListener("INTERNAL", parse_broker_settings(texts)[0], lambda *_: None)


def test_a_broker_has_the_credentials_of_its_listener() -> None:
    found = listener(sasl__mechanism__inter__broker__protocol="PLAIN").login_of_brokers()
    assert found == Login("PLAIN", {"username": "broker", "password": "b", "user_broker": "b"})


def test_the_mechanism_of_brokers_must_be_enabled() -> None:
    """KafkaConfig.validateValues; the default, GSSAPI, is not served."""
    with pytest.raises(TidegaugeError, match=r"GSSAPI must be included in sasl\.enabled\.mechanisms"):
        listener().login_of_brokers()


def test_a_broker_without_credentials_does_not_start() -> None:
    entry = {"listener__name__internal__plain__sasl__jaas__config": f'{MODULE} required user_broker="b-secret";'}
    with pytest.raises(TidegaugeError, match="has no username") as caught:
        listener(sasl__mechanism__inter__broker__protocol="PLAIN", **entry).login_of_brokers()
    assert "b-secret" not in caught.value.message


# A channel


class Sasl:
    """A peer that takes one password and gives each session a lifetime."""

    def __init__(self, *, word: str = KNOWN, lifetime_ms: int = 0) -> None:
        self.word = word
        self.lifetime_ms = lifetime_ms
        self.order: list[str] = []
        self.peer = MemoryPeer(
            {SASL_HANDSHAKE: self._handshake, SASL_AUTHENTICATE: self._authenticate, HEARTBEAT: self._heartbeat}
        )

    def channel(self, mechanism: str = "PLAIN") -> KafkaChannel:
        return KafkaChannel("broker-2:9092", "broker-1", self.peer.dial, login(mechanism))

    def _handshake(self, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
        self.order.append(f"handshake {request.mechanism}")
        code = 0 if request.mechanism == "PLAIN" else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return SaslHandshakeResponse(code, ["PLAIN"])

    def _authenticate(self, request: SaslAuthenticateRequest, version: int) -> SaslAuthenticateResponse:
        self.order.append("authenticate")
        if bytes(request.auth_bytes) != f"\0broker\0{self.word}".encode():
            return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "Authentication failed: Invalid")
        return SaslAuthenticateResponse(session_lifetime_ms=self.lifetime_ms)

    def _heartbeat(self, request: HeartbeatRequest, version: int) -> HeartbeatResponse:
        self.order.append(f"request {request.generation_id}")
        return HeartbeatResponse(throttle_time_ms=request.generation_id)


async def beat(channel: KafkaChannel, generation: int) -> Any:
    return await channel.request(HEARTBEAT, HeartbeatRequest("g", generation, "m"), NEVER_SECONDS)


async def test_a_channel_authenticates_itself_before_its_first_request() -> None:
    sasl = Sasl()
    channel = sasl.channel()
    await beat(channel, 1)
    await beat(channel, 2)
    assert sasl.order == ["handshake PLAIN", "authenticate", "request 1", "request 2"]


async def test_a_session_that_is_about_to_end_is_renewed_on_the_same_connection() -> None:
    """KIP-368: the next request waits for it, and so do those beside it."""
    sasl = Sasl(lifetime_ms=1)
    channel = sasl.channel()
    await beat(channel, 1)
    sasl.lifetime_ms = 0
    await asyncio.gather(beat(channel, 2), beat(channel, 3))
    again = ["handshake PLAIN", "authenticate"]
    assert sasl.order == [*again, "request 1", *again, "request 2", "request 3"]
    assert len(sasl.peer.connections) == 1


async def test_a_renewal_that_is_refused_ends_the_connection() -> None:
    sasl = Sasl(lifetime_ms=1)
    channel = sasl.channel()
    await beat(channel, 1)
    sasl.word, sasl.lifetime_ms = "changed", 0
    with pytest.raises(NotAuthenticated, match="did not authenticate this side: Authentication failed: Invalid"):
        await beat(channel, 2)
    assert sasl.peer.transports[0].is_aborted
    sasl.word = KNOWN
    assert (await beat(channel, 3)).throttle_time_ms == 3, "the next request connects again"


@pytest.mark.parametrize(
    ("mechanism", "why"), [("PLAIN", "Authentication failed: Invalid"), ("SCRAM-SHA-256", "it takes PLAIN")]
)
async def test_a_refusal_says_why_and_nothing_of_the_password(mechanism: str, why: str) -> None:
    sasl = Sasl(word="another")
    with pytest.raises(TidegaugeError, match=why) as caught:
        await beat(sasl.channel(mechanism), 1)
    assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
    assert "broker-secret" not in caught.value.message


async def test_a_peer_without_sasl_is_named_as_such() -> None:
    peer = MemoryPeer({}, {SASL_AUTHENTICATE: (0, -1)})
    channel = KafkaChannel("broker-2:9092", "broker-1", peer.dial, login("PLAIN"))
    with pytest.raises(TidegaugeError, match="does not serve SASL"):
        await beat(channel, 1)
