"""PLAIN, SCRAM and OAUTHBEARER, message by message, and the JAAS entries that configure them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge.cluster_metadata.credentials import ScramCredential
from tidegauge.jaas import login_module_of
from tidegauge.principal import Principal, principal_of
from tidegauge.wall_time import WallTime
from tidegauge.znodes.credentials import decode_credential
from tidegauge_broker.security.sasl.exchange import AuthenticationRefused, Exchange, InvalidCredentials
from tidegauge_broker.security.sasl.oauthbearer import OauthBearerExchange, TokenRules
from tidegauge_broker.security.sasl.plain import PlainExchange
from tidegauge_broker.security.sasl.scram import HASHES, ScramExchange

NOW_MS = 1_000_000
INVALID_TOKEN = b'{"status":"invalid_token"}'


def test_a_principal_is_a_type_and_a_name_and_the_name_may_have_colons() -> None:
    """SecurityUtils.parseKafkaPrincipal."""
    assert principal_of("User:CN=a:b") == Principal("User", "CN=a:b")
    assert str(principal_of("User:alice")) == "User:alice"
    for text in ("alice", ":alice", "User:", ""):
        with pytest.raises(ValueError, match="principalType:principalName"):
            principal_of(text)


# PLAIN (RFC 4616)


def plain(message: bytes) -> str | None:
    exchange = PlainExchange({"alice": "pass word", "ö": "ü"})
    assert exchange.evaluate(message, NOW_MS) == b""
    return exchange.principal_name


def test_plain_takes_the_right_password_and_an_authorization_id_that_is_the_name() -> None:
    assert plain(b"\0alice\0pass word") == "alice"
    assert plain(b"alice\0alice\0pass word") == "alice"
    assert plain("\0ö\0ü".encode()) == "ö"


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0bob\0pass word", "Authentication failed: Invalid username or password"),
        (b"\0bob\0\x01", "Authentication failed: Invalid username or password"),
        (b"\0\0pass", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"alice\0pass word", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice\0pass word\0x", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (
            b"bob\0alice\0pass word",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_plain_refuses_in_kafkas_sentences(message: bytes, sentence: str) -> None:
    """PlainSaslServer.evaluateResponse."""
    with pytest.raises(AuthenticationRefused) as caught:
        plain(message)
    assert str(caught.value) == sentence


# SCRAM (RFC 5802, RFC 7677)


def scram_credential(mechanism: str, password: bytes, salt: bytes, iterations: int = 4096) -> ScramCredential:
    name = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password, salt, iterations)
    stored = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    return ScramCredential(salt, stored, hmac.digest(salted, b"Server Key", name), iterations)


def client_final(mechanism: str, password: bytes, bare: str, first: str) -> str:
    """A client's final message, made from the password alone (RFC 5802, section 3)."""
    name = HASHES[mechanism]
    parts = dict(part.split("=", 1) for part in first.split(","))
    salted = hashlib.pbkdf2_hmac(name, password, base64.b64decode(parts["s"]), int(parts["i"]))
    key = hmac.digest(salted, b"Client Key", name)
    final = f"c=biws,r={parts['r']}"
    signature = hmac.digest(hashlib.new(name, key).digest(), f"{bare},{first},{final}".encode(), name)
    proof = bytes(left ^ right for left, right in zip(key, signature, strict=True))
    return f"{final},p={base64.b64encode(proof).decode()}"


def test_scram_is_that_of_the_rfc() -> None:
    """The example of RFC 7677, section 3, byte for byte."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = scram_credential("SCRAM-SHA-256", b"pencil", salt)
    exchange = ScramExchange("SCRAM-SHA-256", {"user": credential}.get, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = exchange.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", NOW_MS)
    assert first == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert exchange.principal_name is None
    final = exchange.evaluate(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        NOW_MS,
    )
    assert final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert exchange.principal_name == "user"


@pytest.mark.parametrize("mechanism", list(HASHES))
@pytest.mark.parametrize(("sasl_name", "user"), [("a=2Cb", "a,b"), ("a=3Db", "a=b"), ("alice", "alice")])
def test_scram_takes_names_with_commas_and_equals_signs(mechanism: str, sasl_name: str, user: str) -> None:
    credential = scram_credential(mechanism, b"secret", b"salt", 8192)
    exchange = ScramExchange(mechanism, {user: credential}.get, "server")
    bare = f"n={sasl_name},r=client"
    first = exchange.evaluate(f"n,,{bare}".encode(), NOW_MS).decode()
    assert exchange.evaluate(client_final(mechanism, b"secret", bare, first).encode(), NOW_MS).startswith(b"v=")
    assert exchange.principal_name == user


@pytest.mark.parametrize(
    "first",
    [
        "n,,n=stranger,r=x",
        "y,,n=user,r=x",
        "p=tls,,n=user,r=x",
        "n,,n=user",
        "",
        "n,,n=user,r=x,tokenauth=true",
        "n,,n==,r=x",
    ],
)
def test_scram_refuses_a_first_message_that_is_malformed_or_of_an_unknown_user(first: str) -> None:
    """ScramSaslServer: all of these look alike to the client."""
    exchange = ScramExchange("SCRAM-SHA-256", {"user": scram_credential("SCRAM-SHA-256", b"p", b"s")}.get, "server")
    with pytest.raises(InvalidCredentials):
        exchange.evaluate(first.encode(), NOW_MS)


@pytest.mark.parametrize("password", [b"wrong", b""])
def test_scram_refuses_a_wrong_password(password: bytes) -> None:
    exchange = ScramExchange("SCRAM-SHA-512", {"u": scram_credential("SCRAM-SHA-512", b"right", b"s")}.get, "server")
    first = exchange.evaluate(b"n,,n=u,r=c", NOW_MS).decode()
    with pytest.raises(InvalidCredentials, match="Invalid client credentials"):
        exchange.evaluate(client_final("SCRAM-SHA-512", password, "n=u,r=c", first).encode(), NOW_MS)
    assert exchange.principal_name is None


@pytest.mark.parametrize("final", ["c=biws,r=cother,p=AAAA", "c=biws,r=cserver,p=AAAA", "c=biws,r=cserver", ""])
def test_scram_refuses_another_nonce_and_a_proof_of_another_length(final: str) -> None:
    exchange = ScramExchange("SCRAM-SHA-256", {"u": scram_credential("SCRAM-SHA-256", b"p", b"s")}.get, "server")
    exchange.evaluate(b"n,,n=u,r=c", NOW_MS)
    with pytest.raises(InvalidCredentials):
        exchange.evaluate(final.encode(), NOW_MS)


def test_scram_takes_a_nonce_with_the_clients_part_twice() -> None:
    """librdkafka before 2.6.1 sends it so, and Kafka 3.9 takes what ends with the nonce (ScramSaslServer)."""
    exchange = ScramExchange("SCRAM-SHA-256", {"u": scram_credential("SCRAM-SHA-256", b"p", b"s")}.get, "server")
    first = exchange.evaluate(b"n,,n=u,r=client", NOW_MS).decode()
    name = HASHES["SCRAM-SHA-256"]
    key = hmac.digest(hashlib.pbkdf2_hmac(name, b"p", b"s", 4096), b"Client Key", name)
    bare = "c=biws,r=clientclientserver"
    signature = hmac.digest(hashlib.new(name, key).digest(), f"n=u,r=client,{first},{bare}".encode(), name)
    proof = base64.b64encode(bytes(left ^ right for left, right in zip(key, signature, strict=True))).decode()
    assert exchange.evaluate(f"{bare},p={proof}".encode(), NOW_MS).startswith(b"v=")
    assert exchange.principal_name == "u"


def test_scram_refuses_too_few_iterations_and_another_authorization_id() -> None:
    weak = scram_credential("SCRAM-SHA-256", b"p", b"s", 4095)
    with pytest.raises(InvalidCredentials, match="less than the minimum 4096"):
        ScramExchange("SCRAM-SHA-256", {"u": weak}.get, "s").evaluate(b"n,,n=u,r=c", NOW_MS)
    strong = scram_credential("SCRAM-SHA-256", b"p", b"s")
    with pytest.raises(AuthenticationRefused, match="authorization id that is different"):
        ScramExchange("SCRAM-SHA-256", {"u": strong}.get, "s").evaluate(b"n,a=v,n=u,r=c", NOW_MS)


def test_a_credential_is_read_as_the_znode_has_it_and_shows_no_key() -> None:
    """ScramCredentialUtils.credentialFromString."""
    found = decode_credential("salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096")
    assert found == ScramCredential(b"salt", b"stored", b"server", 4096)
    assert repr(found) == "ScramCredential(iterations=4096)"
    for text in (
        "",
        "salt=c2FsdA==",
        "salt=!,stored_key=,server_key=,iterations=1",
        "salt=,stored_key=,server_key=,iterations=x",
    ):
        with pytest.raises(ValueError, match=r"^Credentials not valid$"):
            decode_credential(text)


# OAUTHBEARER (RFC 7628) with unsecured tokens


def encoded(value: Any) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.b64encode(text).rstrip(b"=").decode()


def token(claims: Any, header: Any = None) -> str:
    return f"{encoded({'alg': 'none'} if header is None else header)}.{encoded(claims)}."


def bearer(value: str, authorization_id: str = "") -> bytes:
    return f"n,{authorization_id and 'a=' + authorization_id},\x01auth=Bearer {value}\x01\x01".encode()


CLAIMS: Mapping[str, Any] = {"sub": "carol", "exp": NOW_MS / 1000 + 60, "iat": NOW_MS / 1000 - 1}


def test_a_token_names_the_principal_and_the_end_of_the_session() -> None:
    exchange = OauthBearerExchange(TokenRules())
    assert exchange.evaluate(bearer(token(CLAIMS)), NOW_MS) == b""
    assert (exchange.principal_name, exchange.expires_ms) == ("carol", NOW_MS + 60_000)


@pytest.mark.parametrize(
    "value",
    [
        token({**CLAIMS, "exp": NOW_MS / 1000}),
        token({**CLAIMS, "exp": "tomorrow"}),
        token({**CLAIMS, "exp": 10**400}),
        token({**CLAIMS, "exp": True}),
        token(b'{"sub":"c","exp":Infinity}'),
        token(b'{"sub":"c","exp":1e999}'),
        token({**CLAIMS, "iat": NOW_MS / 1000 + 1}),
        token({**CLAIMS, "iat": CLAIMS["exp"]}),
        token({**CLAIMS, "sub": " "}),
        token({**CLAIMS, "sub": 7}),
        token({"exp": CLAIMS["exp"]}),
        token({"sub": "carol"}),
        token([1]),
        token(b"["),
        token(b"[" * 100_000),
        token(b"\xff"),
        token(CLAIMS, {"alg": "RS256"}),
        token(CLAIMS, {}),
        token(CLAIMS) + "c2ln",
        token(CLAIMS)[:-1],
        "a..b",
        "-_.-_.",
    ],
)
def test_a_token_that_is_not_accepted_has_a_status_and_fails_with_the_acknowledgement(value: str) -> None:
    """OAuthBearerUnsecuredJws, OAuthBearerUnsecuredValidatorCallbackHandler; RFC 7628, section 3.2.3."""
    exchange = OauthBearerExchange(TokenRules())
    assert exchange.evaluate(bearer(value), NOW_MS) == INVALID_TOKEN
    assert exchange.principal_name is None
    with pytest.raises(AuthenticationRefused, match="invalid_token"):
        exchange.evaluate(b"\x01", NOW_MS)


@pytest.mark.parametrize("ahead_ms", [86_400_000, -86_400_000])
def test_a_token_is_valid_by_the_wall_clock_and_its_session_ends_by_the_brokers_own(ahead_ms: int) -> None:
    """A broker whose machine slept, or whose clock was set, accepts the tokens of now (Time.SYSTEM.milliseconds())."""
    claims = {"sub": "carol", "exp": (NOW_MS + ahead_ms) / 1000 + 60, "iat": (NOW_MS + ahead_ms) / 1000 - 1}
    exchange = OauthBearerExchange(TokenRules(), WallTime(ahead_ms))
    assert exchange.evaluate(bearer(token(claims)), NOW_MS) == b""
    assert exchange.expires_ms == NOW_MS + 60_000
    assert (
        OauthBearerExchange(TokenRules(), WallTime(ahead_ms)).evaluate(bearer(token(CLAIMS)), NOW_MS) == INVALID_TOKEN
    )


def test_required_scopes_another_claim_and_a_clock_skew_are_options_of_the_entry() -> None:
    options = {
        "unsecuredValidatorPrincipalClaimName": "who",
        "unsecuredValidatorScopeClaimName": "can",
        "unsecuredValidatorRequiredScope": "read write",
        "unsecuredValidatorAllowableClockSkewMs": "3000",
    }
    rules = TokenRules.of(options)
    late = {"who": "dan", "exp": NOW_MS / 1000 - 2}
    exchange = OauthBearerExchange(rules)
    assert exchange.evaluate(bearer(token({**late, "can": ["write", "read"]})), NOW_MS) == b""
    refused = OauthBearerExchange(rules).evaluate(bearer(token({**late, "can": "read"})), NOW_MS)
    assert refused == b'{"status":"insufficient_scope", "scope":"[read, write]"}'
    with pytest.raises(ValueError, match="must be a number of ms"):
        TokenRules.of({"unsecuredValidatorAllowableClockSkewMs": "-1"})


@pytest.mark.parametrize(
    "message", [b"", b"\x01", b"n,,\x01\x01", b"n,,\x01auth=Basic eA==\x01\x01", b"y,,\x01auth=Bearer a\x01\x01"]
)
def test_a_malformed_bearer_message_is_refused(message: bytes) -> None:
    with pytest.raises(InvalidCredentials, match="Invalid OAUTHBEARER client first message"):
        OauthBearerExchange(TokenRules()).evaluate(message, NOW_MS)


def test_a_bearer_may_not_act_for_another() -> None:
    with pytest.raises(AuthenticationRefused, match="different from the token's principal name"):
        OauthBearerExchange(TokenRules()).evaluate(bearer(token(CLAIMS), "dan"), NOW_MS)


# JAAS


def test_a_login_module_has_options_and_users() -> None:
    """JaasConfig: quotation marks, escapes, any white space."""
    module = login_module_of(
        'o.a.k.PlainLoginModule required\n  username=admin password="a;b" user_alice="x\\"y" user_bob = \'z\' ;'
    )
    assert module.name == "o.a.k.PlainLoginModule"
    assert module.passwords == {"alice": 'x"y', "bob": "z"}
    assert module.options["password"] == "a;b"  # noqa: S105 - of no account
    assert "a;b" not in repr(module)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "Login module not specified"),
        ("Module;", "control flag"),
        ("Module secret=1;", "control flag"),
        ('Module required password="secret"', "not terminated by semi-colon"),
        ("Module required password=;", "has no value"),
        ("Module required password secret;", "has no value"),
        ('Module required password="secret;', "no counterpart"),
        ("Module required; Module required;", "several login modules"),
    ],
)
def test_a_malformed_entry_is_refused_without_its_text(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        login_module_of(text)
    assert "secret" not in str(caught.value)


# Hostile input

credential = scram_credential("SCRAM-SHA-256", b"p", b"s")
messages = st.one_of(
    st.binary(max_size=200),
    st.text("na=,mrcpv\x00\x01 3D2CuserBearer.", max_size=60).map(str.encode),
    st.sampled_from(
        [b"n,,n=user,r=c", b"c=biws,r=cserver,p=AAAA", b"\x01", b"\0alice\0x", bearer("a.b."), bearer(token(CLAIMS))]
    ),
)


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]), st.lists(messages, max_size=4))
def test_no_message_fails_otherwise_or_authenticates_by_chance(mechanism: str, sent: list[bytes]) -> None:
    exchange: Exchange = PlainExchange({"alice": "secret"})
    if mechanism == "SCRAM-SHA-256":
        exchange = ScramExchange(mechanism, {"user": credential}.get, "server")
    elif mechanism == "OAUTHBEARER":
        exchange = OauthBearerExchange(TokenRules())
    for message in sent:
        try:
            exchange.evaluate(message, NOW_MS)
        except (AuthenticationRefused, InvalidCredentials):
            break
        if exchange.principal_name is not None:
            assert message == bearer(token(CLAIMS))
            break
