"""TLS by Kafka's settings: parsing, errors reported before a connection is made, and their sentences."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from tests.certificates import Authority, Identity

from tidegauge.call_credentials import metadata_of
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.handshakes import client_reason, peer_reason, server_reason
from tidegauge.listeners import resolve_listeners
from tidegauge.secure_channels import channel_credentials, server_credentials
from tidegauge.security import PLAIN, Security, security_of, security_of_files
from tidegauge.settings import BROKER_SETTINGS, BrokerSettings, parse_broker_settings, read_properties

BOTH = ("PLAINTEXT:PLAINTEXT", "SSL:SSL")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "authority")


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Identity:
    return authority.issue("broker")


def refusal(properties: dict[str, str], protocol: str = "SSL") -> str:
    with pytest.raises(TidegaugeError) as caught:
        security_of(properties, protocol)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert "\n" not in caught.value.message
    return caught.value.message


def test_plain_text_needs_nothing() -> None:
    assert security_of({}, "PLAINTEXT") == security_of_files() == PLAIN
    assert not PLAIN.is_tls


def test_files_and_texts_of_kafkas_settings_say_the_same(authority: Authority, broker: Identity) -> None:
    """KIP-651: a PEM store is a file, or the texts themselves, with any white space for line breaks."""
    by_file = security_of(
        {"ssl.keystore.location": str(broker.both), "ssl.truststore.location": str(authority.certificate)}, "ssl"
    )
    texts = {
        "ssl.keystore.certificate.chain": broker.certificate.read_text().replace("\n", " "),
        "ssl.keystore.key": broker.key.read_text().replace("\n", "\\n"),
        "ssl.truststore.certificates": authority.certificate.read_text(),
        "ssl.truststore.type": "PEM",
    }
    by_text = security_of(texts, "SSL")
    by_argument = security_of_files("SSL", authority.certificate, broker.certificate, broker.key)
    assert by_file == by_text == by_argument == pickle.loads(pickle.dumps(by_text))  # noqa: S301 - of our own making
    assert (by_file.is_tls, by_file.protocol) == (True, "SSL")


def test_a_private_key_is_never_shown(broker: Identity) -> None:
    """Not by a printed object, and not by describe-config (Kafka's type PASSWORD)."""
    security = security_of({"ssl.keystore.location": str(broker.both)}, "SSL")
    assert "PRIVATE" not in repr(security)
    values, _ = parse_broker_settings({"ssl.keystore.key": broker.key.read_text()})
    shown = {view.name: view for view in BrokerSettings(values).views()}["ssl.keystore.key"]
    assert shown.value is None
    assert [synonym.value for synonym in shown.synonyms] == [""]
    assert BROKER_SETTINGS["ssl.keystore.key"].type_name == "PASSWORD"


def test_what_can_not_be_used_is_refused_with_the_settings_name(
    tmp_path: Path, authority: Authority, broker: Identity
) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing\n")
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    locked = tmp_path / "locked.pem"
    locked.write_text(broker.certificate.read_text() + broker.key.read_text().replace("PRIVATE", "ENCRYPTED PRIVATE"))
    other = authority.issue("other")
    mixed = tmp_path / "mixed.pem"
    mixed.write_text(broker.certificate.read_text() + other.key.read_text())
    assert "there is no SASL mechanism GSSAPI here" in refusal({}, "SASL_SSL"), "it is Kafka's default"
    assert "it must be PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL" in refusal({}, "KERBEROS")
    assert "ssl.truststore.location: the file can't be read: No such file" in refusal(
        {"ssl.truststore.location": "/no"}
    )
    assert "holds no certificate" in refusal({"ssl.truststore.location": str(empty)})
    assert "ssl.truststore: a certificate can't be read" in refusal({"ssl.truststore.location": str(broken)})
    assert "holds no private key" in refusal({"ssl.keystore.location": str(broker.certificate)})
    assert "is encrypted" in refusal({"ssl.keystore.location": str(locked)})
    assert "does not belong to the first certificate" in refusal({"ssl.keystore.location": str(mixed)})
    assert "belong together" in refusal({"ssl.keystore.certificate.chain": broker.certificate.read_text()})
    assert "only PEM is read" in refusal({"ssl.keystore.type": "JKS"})
    assert "without a password" in refusal({"ssl.key.password": "secret"})
    assert "always verified" in refusal({"ssl.endpoint.identification.algorithm": "none"})
    with pytest.raises(TidegaugeError, match="ssl_keyfile needs ssl_certfile"):
        security_of_files("SSL", ssl_keyfile=broker.key)
    with pytest.raises(TidegaugeError, match="security_protocol='SSL'"):
        security_of_files(ssl_cafile=authority.certificate)


def test_credentials_of_a_python_client_have_kafka_pythons_names(authority: Authority) -> None:
    """Over gRPC under TLS alone; arguments without effect are refused."""
    user = {"sasl_plain_username": "alice", "sasl_plain_password": "alice-secret"}
    made = security_of_files("SASL_SSL", authority.certificate, sasl_mechanism="SCRAM-SHA-512", **user)
    assert made.is_tls
    assert made.login is not None
    assert made.login.mechanism == "SCRAM-SHA-512"
    assert "alice-secret" not in repr(made)
    assert channel_credentials(made) is not None
    with pytest.raises(TidegaugeError, match="under TLS alone; write SASL_SSL"):
        security_of_files("SASL_PLAINTEXT", **user)
    with pytest.raises(TidegaugeError, match="SASL credentials without security_protocol='SASL_SSL' have no effect"):
        security_of_files("SSL", authority.certificate, **user)
    with pytest.raises(TidegaugeError, match="has no password, which PLAIN needs"):
        security_of_files("SASL_SSL", sasl_plain_username="alice")
    with pytest.raises(TidegaugeError, match="there is no SASL mechanism GSSAPI here"):
        security_of_files("SASL_SSL", sasl_mechanism="GSSAPI", **user)


def test_a_token_provider_is_asked_for_each_token(authority: Authority) -> None:
    class Provider:
        asked = 0

        def token(self) -> str:
            self.asked += 1
            return f"a.b{self.asked}."

    provider = Provider()
    made = security_of_files(
        "SASL_SSL", authority.certificate, sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=provider
    )
    assert made.login is not None
    tokens = [dict(metadata_of(made.login, 0))["authorization"] for _ in range(2)]
    assert tokens == ["Bearer a.b1.", "Bearer a.b2."]


def test_a_listener_with_tls_needs_a_certificate_and_one_with_client_auth_authorities(broker: Identity) -> None:
    with pytest.raises(TidegaugeError, match="needs a private key and a certificate"):
        server_credentials(Security(is_tls=True), needs_client_certificate=False)
    own = security_of({"ssl.keystore.location": str(broker.both)}, "SSL")
    with pytest.raises(TidegaugeError, match=r"write ssl\.truststore\.location"):
        server_credentials(own, needs_client_certificate=True)


def test_a_listeners_protocol_is_mapped_and_brokers_choose_theirs() -> None:
    """listener.security.protocol.map, security.inter.broker.protocol, inter.broker.listener.name."""
    two = "GRPC://127.0.0.1:1,GRPC_SSL://127.0.0.1:2"
    found = resolve_listeners(two, None, None, BOTH)
    assert found.protocols == {"GRPC": "PLAINTEXT", "GRPC_SSL": "SSL"}
    assert (found.inter_broker.name, found.inter_broker_protocol) == ("GRPC", "PLAINTEXT")
    assert resolve_listeners(two, None, None, BOTH, "SSL").inter_broker_protocol == "SSL"
    in_and_out = ("OUT:SSL", "IN:PLAINTEXT")
    mapped = resolve_listeners("OUT://127.0.0.1:1,IN://127.0.0.1:2", None, "IN", in_and_out, None, ("IN:GRPC",))
    assert (mapped.protocols, mapped.inter_broker_protocol) == ({"OUT": "SSL", "IN": "PLAINTEXT"}, "PLAINTEXT")
    with pytest.raises(TidegaugeError, match=r"only one of inter\.broker\.listener\.name and security"):
        resolve_listeners(two, None, "GRPC_SSL", BOTH, "SSL")
    with pytest.raises(TidegaugeError, match="no advertised gRPC listener has it"):
        resolve_listeners("GRPC://127.0.0.1:1", None, None, BOTH, "SSL")


@pytest.mark.parametrize(
    ("details", "words"),
    [
        ("Hostname Verification Check failed.", "not valid for h"),
        ("CERTIFICATE_VERIFY_FAILED: certificate has expired: OK", "the broker's certificate has expired"),
        ("CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate", "ssl_cafile"),
        ("OPENSSL_internal:WRONG_VERSION_NUMBER: Invalid", "speaks plain text"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required", "wants a client certificate"),
        ("[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca", "rejects this client's certificate"),
        ("Ssl handshake failed: SSL_ERROR_SSL: error:1:SOMETHING_NEW: OK", "the TLS handshake failed: SOMETHING_NEW"),
    ],
)
def test_a_client_gets_the_cause_and_what_to_do(details: str, words: str) -> None:
    reason = client_reason(details, "h")
    assert reason is not None
    assert words in reason
    assert ";" in reason, "what to do stands behind the reason"


def test_what_is_not_about_tls_gets_no_reason() -> None:
    assert client_reason("connect: Connection refused", "h") is None
    assert server_reason("E1121 something else.cc:1] Socket closed") is None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("SSL_ERROR_SSL: error:100000f7:SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER: Invalid", "plain text"),
        ("SSL_ERROR_SSL: error:1:SSL routines:OPENSSL_internal:HTTP_REQUEST: Invalid", "plain text"),
        ("SSL_ERROR_SSL: e:PEER_DID_NOT_RETURN_A_CERTIFICATE: Invalid", "presented no certificate"),
        ("SSL_ERROR_SSL: e:CERTIFICATE_VERIFY_FAILED: certificate has expired", "has expired"),
        (
            "SSL_ERROR_SSL: e:CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate",
            "ssl.truststore.location",
        ),
        ("SSL_ERROR_SSL: e:TLSV1_ALERT_UNKNOWN_CA: Invalid", "does not trust this broker's certificate"),
        ("SSL_ERROR_SSL: e:NO_SHARED_CIPHER: x", "same port"),
    ],
)
def test_a_brokers_log_says_why_and_what_to_do(error: str, words: str) -> None:
    reason = server_reason(f"I1121 14:50:27.1 12 ssl_transport_security.cc:2563] Handshake failed with error {error}\n")
    assert reason is not None
    assert words in reason


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("WRONG_VERSION_NUMBER", "one side speaks plain text and the other TLS"),
        ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "presented no certificate"),
        ("certificate has expired", "the peer's certificate has expired"),
        ("unable to get local issuer certificate", "no authority in ssl.truststore.location"),
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", "does not trust this broker's certificate"),
        ("TLSV1_ALERT_UNKNOWN_CA", "does not trust this broker's certificate"),
        ("NO_SHARED_CIPHER", "NO_SHARED_CIPHER; check that both sides use the same port"),
    ],
)
def test_what_openssl_says_of_a_peer_at_a_listener_of_kafkas_protocol_has_a_sentence(said: str, words: str) -> None:
    """The reason of an ``ssl.SSLError``, and the message of a certificate that could not be verified."""
    assert words in peer_reason(said)


FORMS = {
    "spaces": lambda text: text.replace("\n", " "),
    "escapes": lambda text: text.replace("\n", "\\n"),
    "escapes of Windows": lambda text: text.replace("\n", "\\r\\n"),
    "continued lines": lambda text: text.strip().replace("\n", " \\\n  "),
    "continued lines with escapes": lambda text: text.strip().replace("\n", "\\n\\\n"),
}
"""The forms of a PEM text in a properties file of Kafka's."""


@pytest.mark.parametrize("form", FORMS)
def test_a_pem_text_of_a_properties_file_is_that_of_the_file(form: str, broker: Identity) -> None:
    """Kafka 3.9.1 reads each of them (java.util.Properties and PemStore of DefaultSslEngineFactory)."""
    text = "".join(
        f"{name}={FORMS[form](path.read_text())}\n"
        for name, path in (("ssl.keystore.key", broker.key), ("ssl.keystore.certificate.chain", broker.certificate))
    )
    by_file = security_of({"ssl.keystore.location": str(broker.both)}, "SSL")
    assert security_of(read_properties(text), "SSL") == by_file


@pytest.mark.parametrize("line_break", ["\n", "\\\n"], ids=["not continued", "continued without white space"])
def test_a_pem_text_whose_lines_are_broken_is_refused_with_what_to_do(line_break: str, broker: Identity) -> None:
    """Kafka 3.9.1 does not start on either: No matching PRIVATE KEY entries in PEM file."""
    names = ("ssl.keystore.certificate.chain", broker.certificate), ("ssl.keystore.key", broker.key)
    for name, path in names:
        text = f"{name}={path.read_text().strip()}".replace("\n", line_break)
        message = refusal(read_properties(text))
        assert f"{name} holds no" in message
        assert "a space before the \\ that continues a line" in message
