"""The states of a connection that authenticates itself: Kafka's SaslServerAuthenticator and KIP-368."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from tidegauge.kafka.frames import joined, request_frame
from tidegauge.kafka.messages.api_versions import ApiVersionsRequest
from tidegauge.kafka.messages.metadata import MetadataRequest
from tidegauge.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from tidegauge.kafka.messages.sasl_handshake import SaslHandshakeRequest
from tidegauge.principal import Principal
from tidegauge_broker.security.sasl.authenticator import (
    Authenticated,
    Close,
    Failed,
    Refuse,
    Respond,
    RespondVersions,
    SaslAuthenticator,
    SendToken,
    State,
    in_hash_order,
)
from tidegauge_broker.security.sasl.exchange import InvalidCredentials
from tidegauge_broker.security.sasl.plain import PlainExchange

ALICE = b"\0alice\0secret"
BOB = b"\0bob\0other"
NOW_MS = 50_000


class Expiring(PlainExchange):
    """PLAIN whose credential expires."""

    expires_ms = NOW_MS + 700


class Vague:
    """A mechanism that does not say why it fails."""

    principal_name = expires_ms = None

    def evaluate(self, token: bytes, now_ms: int) -> bytes:
        raise InvalidCredentials("no user of this name")


class Mechanisms:
    enabled = ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER")
    reauth_ms = 0

    def exchange(self, mechanism: str) -> Any:
        kinds: dict[str, Any] = {"PLAIN": PlainExchange, "OAUTHBEARER": Expiring}
        return kinds[mechanism]({"alice": "secret", "bob": "other"}) if mechanism in kinds else Vague()

    def max_reauth_ms(self, mechanism: str) -> int:
        return self.reauth_ms


def frame(key: int, version: int, message: Any) -> bytes:
    return joined(request_frame(key, version, 7, "test", message))[4:]


def versions(version: int = 3) -> bytes:
    return frame(API_VERSIONS, version, ApiVersionsRequest("test", "1"))


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return frame(SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism))


def tokens(token: bytes, version: int = 2) -> bytes:
    return frame(SASL_AUTHENTICATE, version, SaslAuthenticateRequest(token))


METADATA_REQUEST = frame(METADATA, 9, MetadataRequest())


@pytest.fixture
def mechanisms() -> Mechanisms:
    return Mechanisms()


@pytest.fixture
def authenticator(mechanisms: Mechanisms) -> SaslAuthenticator:
    return SaslAuthenticator(mechanisms, lambda _, request: bool(request.client_software_name))


def only(effects: list[Any]) -> Any:
    [effect] = effects
    return effect


@pytest.mark.parametrize("asks_for_versions", [True, False])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_client_authenticates_itself(authenticator: SaslAuthenticator, asks_for_versions: bool, version: int) -> None:
    if asks_for_versions:
        assert isinstance(only(authenticator.received(versions(), NOW_MS)), RespondVersions)
    greeting = only(authenticator.received(handshake(), NOW_MS))
    assert (greeting.message.error_code, set(greeting.message.mechanisms)) == (0, set(Mechanisms.enabled))
    respond, session = authenticator.received(tokens(ALICE, version), NOW_MS)
    assert (respond.message.error_code, respond.message.session_lifetime_ms) == (0, 0)
    assert session == Authenticated(Principal("User", "alice"), "PLAIN", None)
    assert authenticator.is_complete
    assert not authenticator.has_expired(10**15)


def test_tokens_after_handshake_0_have_no_header(authenticator: SaslAuthenticator) -> None:
    authenticator.received(handshake(version=0), NOW_MS)
    sent, session = authenticator.received(ALICE, NOW_MS)
    assert sent == SendToken(b"")
    assert session.principal.name == "alice"


def test_a_bare_token_that_fails_has_no_response(authenticator: SaslAuthenticator) -> None:
    authenticator.received(handshake(version=0), NOW_MS)
    failed = only(authenticator.received(b"\0alice\0wrong", NOW_MS))
    assert failed == Failed("Authentication failed: Invalid username or password", None)


def test_the_mechanisms_stand_in_javas_order() -> None:
    """SaslServerAuthenticator keeps them in a HashSet; this is the order that Java 17 prints."""
    names = ["OAUTHBEARER", "GSSAPI", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]
    assert in_hash_order(names) == ["PLAIN", "SCRAM-SHA-512", "GSSAPI", "SCRAM-SHA-256", "OAUTHBEARER"]


def test_an_unknown_mechanism_gets_33_and_the_list(authenticator: SaslAuthenticator) -> None:
    failed = only(authenticator.received(handshake("GSSAPI"), NOW_MS))
    assert failed.why == "Unsupported SASL mechanism GSSAPI"
    assert failed.response.message.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert set(failed.response.message.mechanisms) == set(Mechanisms.enabled)
    assert authenticator.state is State.FAILED


def test_a_wrong_password_gets_58_with_kafkas_sentence(authenticator: SaslAuthenticator) -> None:
    authenticator.received(handshake(), NOW_MS)
    failed = only(authenticator.received(tokens(b"\0alice\0wrong"), NOW_MS))
    assert failed.response.message.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert failed.response.message.error_message == "Authentication failed: Invalid username or password"
    assert not failed.response.message.auth_bytes


def test_a_failure_that_says_too_much_has_one_sentence_for_all(authenticator: SaslAuthenticator) -> None:
    """Rule 4: whether a user exists is not said."""
    authenticator.received(handshake("SCRAM-SHA-256"), NOW_MS)
    failed = only(authenticator.received(tokens(b"x"), NOW_MS))
    assert failed.response.message.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )
    assert "no user" not in failed.why


@pytest.mark.parametrize("first", [[], [versions()]])
def test_no_other_api_is_served_before(authenticator: SaslAuthenticator, first: list[bytes]) -> None:
    for one in first:
        authenticator.received(one, NOW_MS)
    failed = only(authenticator.received(METADATA_REQUEST, NOW_MS))
    assert failed == Failed("Unexpected Kafka request of type METADATA during SASL handshake.", None)


def test_another_api_among_the_tokens_gets_34(authenticator: SaslAuthenticator) -> None:
    authenticator.received(handshake(), NOW_MS)
    failed = only(authenticator.received(METADATA_REQUEST, NOW_MS))
    assert failed.why == "Unexpected Kafka request of type METADATA during SASL authentication."
    assert isinstance(failed.response, Refuse)
    assert failed.response.error is ErrorCode.ILLEGAL_SASL_STATE


def test_versions_are_asked_for_once_unless_they_were_refused(authenticator: SaslAuthenticator) -> None:
    """handleApiVersionsRequest: after a refusal (an unknown version, no name) the client may ask again."""
    unknown = b"\0\x12\0\x63" + versions()[4:]
    assert only(authenticator.received(unknown, NOW_MS)).message is None
    unnamed = frame(API_VERSIONS, 3, ApiVersionsRequest("", ""))
    assert isinstance(only(authenticator.received(unnamed, NOW_MS)), RespondVersions)
    assert isinstance(only(authenticator.received(versions(), NOW_MS)), RespondVersions)
    assert isinstance(only(authenticator.received(versions(), NOW_MS)), Close)


def test_what_is_no_request_is_taken_for_kerberos_at_first_and_closes_later(authenticator: SaslAuthenticator) -> None:
    assert "GSSAPI is not supported" in only(authenticator.received(b"\x60\x82", NOW_MS)).why
    other = SaslAuthenticator(Mechanisms(), lambda *_: True)
    other.received(versions(), NOW_MS)
    assert isinstance(only(other.received(b"\x60\x82", NOW_MS)), Close)


# Sessions


def authenticated(authenticator: SaslAuthenticator, mechanism: str = "PLAIN", now_ms: int = NOW_MS) -> Any:
    authenticator.received(handshake(mechanism), now_ms)
    return authenticator.received(tokens(ALICE), now_ms)


@pytest.mark.parametrize(
    ("mechanism", "reauth_ms", "lifetime_ms"),
    [
        ("PLAIN", 0, 0),
        ("PLAIN", 1000, 1000),
        ("OAUTHBEARER", 0, 700),
        ("OAUTHBEARER", 300, 300),
        ("OAUTHBEARER", 9000, 700),
    ],
)
def test_a_session_ends_with_the_credential_or_the_limit(
    mechanisms: Mechanisms, authenticator: SaslAuthenticator, mechanism: str, reauth_ms: int, lifetime_ms: int
) -> None:
    """calcCompletionTimesAndReturnSessionLifetimeMs."""
    mechanisms.reauth_ms = reauth_ms
    respond, session = authenticated(authenticator, mechanism)
    assert respond.message.session_lifetime_ms == lifetime_ms
    assert session.ends_ms == (NOW_MS + lifetime_ms if lifetime_ms else None)
    assert not authenticator.has_expired(NOW_MS + lifetime_ms)
    assert authenticator.has_expired(NOW_MS + lifetime_ms + 1) == bool(lifetime_ms)


def test_a_session_without_an_end_is_not_begun_again(authenticator: SaslAuthenticator) -> None:
    """KafkaChannel.maybeBeginServerReauthentication: the request then gets ILLEGAL_SASL_STATE as any other would."""
    authenticated(authenticator)
    assert not authenticator.begins_again(NOW_MS + 5000)


def test_a_client_authenticates_itself_again_at_most_once_a_second(
    mechanisms: Mechanisms, authenticator: SaslAuthenticator
) -> None:
    mechanisms.reauth_ms = 3000
    authenticated(authenticator)
    for now_ms in (NOW_MS + 2000, NOW_MS + 3000):
        assert authenticator.begins_again(now_ms)
        _, session = authenticated(authenticator, now_ms=now_ms)
        assert session.ends_ms == now_ms + 3000
    assert not authenticator.begins_again(now_ms + 999)
    assert not authenticator.has_expired(now_ms + 3000)


def test_another_principal_or_mechanism_is_refused_in_a_reauthentication(
    mechanisms: Mechanisms, authenticator: SaslAuthenticator
) -> None:
    """ensurePrincipalUnchanged, saslMechanismUnchanged."""
    mechanisms.reauth_ms = 3000
    authenticated(authenticator)
    authenticator.begins_again(NOW_MS)
    authenticator.received(handshake(), NOW_MS)
    failed = only(authenticator.received(tokens(BOB), NOW_MS))
    assert failed.why == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert not authenticator.is_complete
    other = SaslAuthenticator(mechanisms, lambda *_: True)
    authenticated(other)
    other.begins_again(NOW_MS)
    assert isinstance(only(other.received(handshake("OAUTHBEARER"), NOW_MS)), Respond)
    failed = only(other.received(tokens(ALICE), NOW_MS))
    assert failed == Failed(
        "SASL mechanism 'OAUTHBEARER' requested by client is not supported for re-authentication of mechanism 'PLAIN'",
        None,
    )


FRAMES = st.one_of(
    st.binary(max_size=80),
    st.sampled_from(
        [versions(), versions(0), handshake(), handshake(version=0), handshake("SCRAM-SHA-256"), METADATA_REQUEST]
    ),
    st.binary(max_size=40).map(tokens),
    st.sampled_from([b"\0\x11", b"\0\x24\0\x02\0\0\0\1\xff\xff\0\xff\xff\xff\xff\x0f", b"\0\x12\0\x03"]),
)


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(FRAMES, max_size=6))
def test_no_frames_authenticate_without_a_password(sent: list[bytes]) -> None:
    """Anything may come: nothing but effects comes of it, and no principal is authenticated."""
    authenticator = SaslAuthenticator(Mechanisms(), lambda *_: True)
    for one in sent:
        effects = authenticator.received(one, NOW_MS)
        assert effects
        assert not any(isinstance(effect, Authenticated) for effect in effects)
        if authenticator.state is State.FAILED:
            assert isinstance(effects[-1], (Failed, Close))
            break
