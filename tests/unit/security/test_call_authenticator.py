"""The credential of a gRPC call: its content, its user, and the memory of it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.call_credentials import AUTHORIZATION, MECHANISM, Basic, check_for_calls, credential_of, metadata_of
from tidegauge.cluster_metadata.credentials import ScramCredential
from tidegauge.errors import TidegaugeError
from tidegauge.sasl_client import HASHES, Login
from tidegauge_broker.security.sasl.call_authenticator import MAX_REMEMBERED, CallAuthenticator, CallSession, ToProve
from tidegauge_broker.security.sasl.exchange import AuthenticationRefused, Exchange
from tidegauge_broker.security.sasl.oauthbearer import OauthBearerExchange, TokenRules
from tidegauge_broker.security.sasl.plain import PlainExchange
from tidegauge_broker.security.sasl.scram import has_password

NOW_MS = 1_000_000_000
SCRAM = "SCRAM-SHA-512"


def keys_of(password: str, mechanism: str = SCRAM, salt: bytes = b"salt") -> ScramCredential:
    """Return what kafka-configs would write, computed by RFC 5802 here."""
    name = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, 4096)
    client_key = hmac.digest(salted, b"Client Key", name)
    return ScramCredential(salt, hashlib.new(name, client_key).digest(), b"", 4096)


class Listener:
    """A listener's mechanisms; counts the lookups of keys."""

    def __init__(self, *enabled: str, reauth_ms: int = 0) -> None:
        self.enabled: Sequence[str] = enabled
        self.keys = {(SCRAM, "carol"): keys_of("carol-secret")}
        self.reauth_ms = reauth_ms

    def exchange(self, mechanism: str) -> Exchange:
        if mechanism == "PLAIN":
            return PlainExchange({"alice": "alice-secret", "ö": "ü:ü"})
        return OauthBearerExchange(TokenRules())

    def credential(self, mechanism: str, user: str) -> ScramCredential | None:
        return self.keys.get((mechanism, user))

    def iterations(self, mechanism: str) -> list[int]:
        return [keys.iterations for (one, _), keys in self.keys.items() if one == mechanism]

    def max_reauth_ms(self, mechanism: str) -> int:
        return self.reauth_ms


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def bearer(**claims: object) -> str:
    parts = [base64.b64encode(json.dumps(one).encode()).decode().rstrip("=") for one in ({"alg": "none"}, claims)]
    return f"Bearer {parts[0]}.{parts[1]}."


def authenticator(*enabled: str, reauth_ms: int = 0) -> CallAuthenticator:
    return CallAuthenticator(Listener(*enabled, reauth_ms=reauth_ms), b"secret of the process")


def authenticated(one: CallAuthenticator, value: str | None, mechanism: str | None = None) -> CallSession:
    """Authenticate as the shell does."""
    known = one.known(value, mechanism, NOW_MS)
    begun = one.begin(value, mechanism, NOW_MS) if known is None else known
    if isinstance(begun, CallSession):
        return begun
    for candidate in begun:
        if one.is_right(candidate):
            return one.proved(str(value), mechanism, candidate, NOW_MS)
    raise one.refusal(begun)


def refused(one: CallAuthenticator, value: str | None, mechanism: str | None = None) -> str:
    with pytest.raises(AuthenticationRefused) as caught:
        authenticated(one, value, mechanism)
    return str(caught.value)


TEXTS = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1)


@given(TEXTS.filter(lambda text: ":" not in text), TEXTS)
def test_what_a_client_sends_is_what_a_broker_reads(user: str, password: str) -> None:
    sent = dict(metadata_of(Login("PLAIN", {"username": user, "password": password}), NOW_MS))
    assert credential_of(sent[AUTHORIZATION]) == Basic(user, password)
    assert sent[MECHANISM] == "PLAIN"


def test_a_user_with_a_colon_can_not_call() -> None:
    with pytest.raises(TidegaugeError, match="has a colon"):
        check_for_calls(Login("PLAIN", {"username": "a:b", "password": "c"}))


SENTENCES = {
    "the token in the call's metadata is malformed",
    "the authorization in the call's metadata is neither Basic nor Bearer",
    "user and password in the call's metadata are malformed",
}


@given(st.text(max_size=40) | st.builds("Basic {}".format, st.text(max_size=40)))
def test_no_text_harms_and_no_error_quotes_it(value: str) -> None:
    said = ""
    try:
        credential_of(value)
    except ValueError as problem:
        said = str(problem)
    assert said in {"", *SENTENCES}


def test_plain_users_are_those_of_the_listener() -> None:
    one = authenticator("PLAIN")
    assert str(authenticated(one, basic("alice", "alice-secret"), "PLAIN").principal) == "User:alice"
    assert authenticated(one, basic("ö", "ü:ü")).principal.name == "ö"
    invalid = "Authentication failed: Invalid username or password"
    for user, password in (("alice", "wrong"), ("bob", "alice-secret"), ("alice\0alice", "alice-secret")):
        assert refused(one, basic(user, password)) in {invalid, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"}
    assert refused(one, basic("bob", "x")) == refused(one, basic("alice", "x")) == invalid, "no user is given away"


def test_a_call_without_a_credential_learns_what_to_set() -> None:
    assert "security.protocol=SASL_SSL" in refused(authenticator("PLAIN"), None)
    for value in ("Digest abc", "Basic !", "Basic " + base64.b64encode(b"no colon").decode(), "Bearer a b"):
        assert refused(authenticator("PLAIN", "OAUTHBEARER"), value).startswith("Authentication failed: ")


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_password_is_compared_with_scrams_keys(mechanism: str) -> None:
    keys = keys_of("carol-secret", mechanism)
    assert has_password(keys, mechanism, "carol-secret")
    assert not has_password(keys, mechanism, "carol-secre")
    assert not has_password(keys._replace(salt=b"other"), mechanism, "carol-secret")


def test_scram_users_are_those_of_the_znodes_and_an_unknown_one_costs_as_much() -> None:
    one = authenticator(SCRAM)
    assert authenticated(one, basic("carol", "carol-secret"), SCRAM).principal.name == "carol"
    sentence = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {SCRAM}"
    assert refused(one, basic("carol", "wrong")) == refused(one, basic("nobody", "wrong")) == sentence
    begun = one.begin(basic("nobody", "wrong"), None, NOW_MS)
    assert isinstance(begun, list), "the hash is computed for who is not there too"
    assert not one.is_right(begun[0])


def test_a_placeholder_costs_what_known_users_cost_and_stays_the_same() -> None:
    """The time of a refusal tells no client which users there are; nor by asking for a name again."""
    listener = Listener(SCRAM)
    listener.keys = {(SCRAM, f"user-{count}"): keys_of("x")._replace(iterations=count) for count in (8192, 16384)}
    one = CallAuthenticator(listener, b"secret")

    def placeholder(name: str) -> ScramCredential:
        begun = one.begin(basic(name, "wrong"), SCRAM, NOW_MS)
        assert isinstance(begun, list)
        return begun[0].keys

    names = [f"nobody-{number}" for number in range(40)]
    assert {placeholder(name).iterations for name in names} == {8192, 16384}
    assert [placeholder(name) for name in names] == [placeholder(name) for name in names]
    assert len({placeholder(name).salt for name in names}) == len(names)
    listener.keys = {}
    assert placeholder("nobody").iterations == 4096, "there is none whose cost it could have"


def test_a_proved_password_is_known_until_the_keys_change_or_the_mechanism_goes() -> None:
    listener = Listener("PLAIN", SCRAM)
    one = CallAuthenticator(listener, b"secret")
    value = basic("carol", "carol-secret")
    assert one.known(value, SCRAM, NOW_MS) is None
    authenticated(one, value, SCRAM)
    found = one.known(value, SCRAM, NOW_MS)
    assert found is not None
    assert found.principal.name == "carol"
    assert one.known(basic("carol", "wrong"), SCRAM, NOW_MS) is None
    assert one.known(value, "PLAIN", NOW_MS) is None, "what was proved by one mechanism says nothing of another"
    listener.enabled = ("PLAIN",)
    assert one.known(value, SCRAM, NOW_MS) is None
    listener.enabled = ("PLAIN", SCRAM)
    listener.keys[SCRAM, "carol"] = keys_of("carol-secret", salt=b"new")
    assert one.known(value, SCRAM, NOW_MS) is None, "also where the password is the same"
    del listener.keys[SCRAM, "carol"]
    assert refused(one, value, SCRAM)


def test_what_is_remembered_holds_no_password_and_has_a_limit() -> None:
    one = authenticator("PLAIN", SCRAM)
    value = basic("carol", "carol-secret")
    authenticated(one, value, SCRAM)
    kept = repr(vars(one))
    assert "carol-secret" not in kept
    assert value.split()[1] not in kept
    keys = keys_of("x")
    for number in range(MAX_REMEMBERED):
        one.proved(basic("u", str(number)), None, ToProve(SCRAM, "u", str(number), keys), NOW_MS)
    assert one.known(value, SCRAM, NOW_MS) is None, "the oldest is forgotten"
    assert "secret" not in repr(ToProve(SCRAM, "u", "secret", keys))


def test_without_a_mechanism_all_that_are_enabled_are_asked() -> None:
    one = authenticator("PLAIN", SCRAM)
    assert authenticated(one, basic("alice", "alice-secret")).principal.name == "alice"
    assert authenticated(one, basic("carol", "carol-secret")).principal.name == "carol"
    assert refused(one, basic("alice", "carol-secret"))
    assert refused(one, basic("alice", "alice-secret"), "OAUTHBEARER").startswith("Unsupported SASL mechanism OAUTHB")
    assert "enabled are PLAIN" in refused(authenticator("PLAIN"), basic("carol", "carol-secret"), SCRAM)
    assert "Unsupported SASL mechanism OAUTHBEARER" in refused(one, bearer(sub="eve", exp=NOW_MS))


def test_a_token_counts_until_it_expires() -> None:
    one = authenticator("OAUTHBEARER")
    ends_s = NOW_MS // 1000 + 60
    found = authenticated(one, bearer(sub="dave", exp=ends_s))
    assert found == (("User", "dave"), 1000 * ends_s)
    assert refused(one, bearer(sub="dave", exp=NOW_MS // 1000)) == '{"status":"invalid_token"}'
    assert refused(one, bearer(exp=ends_s)) == '{"status":"invalid_token"}'


def test_a_session_ends_with_the_token_or_the_longest_session() -> None:
    assert authenticated(authenticator("PLAIN", reauth_ms=500), basic("alice", "alice-secret")).ends_ms == NOW_MS + 500
    assert authenticated(authenticator("PLAIN"), basic("alice", "alice-secret")).ends_ms is None
    short = authenticator("OAUTHBEARER", reauth_ms=500)
    assert authenticated(short, bearer(sub="dave", exp=NOW_MS // 1000 + 60)).ends_ms == NOW_MS + 500
