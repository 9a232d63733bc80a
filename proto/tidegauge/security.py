r"""TLS and credentials by Kafka's settings: from settings and PEM texts to a ``Security``, for brokers and clients.

Contract: every mistake that shows before a connection is made is reported here, in one sentence that names the setting:
a file that can't be read, no certificate in it, a key that is encrypted or belongs to another certificate. Texts are
read once; a ``Security`` holds them, and never prints its private key. This module does not need gRPC, as
``secure_channels`` does.

PEM is the only format. Line breaks of a PEM text may be any white space, or ``\n``, as a properties file has it
before it is read. Host names are always verified (``ssl.endpoint.identification.algorithm`` can't be switched off in
gRPC).
Source: DefaultSslEngineFactory (PEM stores, KIP-651), SslConfigs; docs/security.md.
"""

from __future__ import annotations

import re
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Protocol

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.sasl_client import PLAIN as SASL_PLAIN
from tidegauge.sasl_client import Login

PLAINTEXT = "PLAINTEXT"
SSL = "SSL"
PROTOCOLS = (PLAINTEXT, SSL)
SASL_PLAINTEXT = "SASL_PLAINTEXT"
SASL_SSL = "SASL_SSL"
BESIDE_SASL = {SASL_PLAINTEXT: PLAINTEXT, SASL_SSL: SSL}
"""The protocol below SASL, by the protocol with it."""
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\s+([A-Za-z0-9+/=\s]+?)\s*-----END \1-----(?:\s|$)")
_RUN_TOGETHER = re.compile(r"-----BEGIN [A-Z0-9 ]+-----(?=\S|$)")
"""A PEM text without line breaks: Kafka's PemParser too requires white space behind BEGIN and END."""
_LINE_LENGTH = 64
_REFUSED = {
    "ssl.key.password": "an encrypted private key can't be used; write the key without a password",
    "ssl.keystore.password": "PEM files have no password; leave it out",
    "ssl.truststore.password": "PEM files have no password; leave it out",
}


class TokenProvider(Protocol):
    """A source of OAUTHBEARER tokens, as in kafka-python; it is asked in threads of gRPC."""

    def token(self) -> str:
        """Return a token that is valid now."""
        ...


@dataclass(frozen=True, slots=True)
class Security:
    """The TLS material of a connection.

    Attributes:
        is_tls: False for plain text; the other attributes are unused then.
        authorities: PEM certificates of the trusted authorities; None: the system's.
        certificates: PEM chain presented to the peer; None for none.
        private_key: PEM private key of the first certificate in the chain.
        login: the credentials of SASL; None: there are none.
    """

    is_tls: bool = False
    authorities: bytes | None = None
    certificates: bytes | None = None
    private_key: bytes | None = field(default=None, repr=False)
    login: Login | None = None

    @property
    def protocol(self) -> str:
        """Kafka's name of the security protocol."""
        return SSL if self.is_tls else PLAINTEXT


PLAIN = Security()


def security_of(properties: Mapping[str, Any], protocol: str) -> Security:
    """Return the security that Kafka's settings (a broker's or a client's) describe.

    Args:
        properties: ``ssl.*`` by name, and of a client ``sasl.mechanism`` and ``sasl.jaas.config``; an absent one may be
            None or empty.
        protocol: ``security.protocol`` of a client, or a broker's listener's.

    Raises:
        TidegaugeError: INVALID_CONFIG.
    """
    protocol = str(protocol).strip().upper()
    if protocol in BESIDE_SASL:
        login = Login.of(str(properties.get("sasl.mechanism") or "GSSAPI"), properties.get("sasl.jaas.config"))
        return replace(security_of(properties, BESIDE_SASL[protocol]), login=login)
    if protocol not in PROTOCOLS:
        legal = f"{', '.join((*PROTOCOLS, *BESIDE_SASL)[:-1])} or {[*BESIDE_SASL][-1]}"
        raise _invalid("security.protocol", protocol, f"it must be {legal}")
    if protocol == PLAINTEXT:
        return PLAIN

    def given(name: str) -> str:
        return str(properties.get(name) or "").strip()

    for name, why in _REFUSED.items():
        if given(name):
            raise TidegaugeError(ErrorCode.INVALID_CONFIG, f"{name}: {why}")
    for name in ("ssl.keystore.type", "ssl.truststore.type"):
        if given(name).upper() not in {"", "PEM"}:
            raise _invalid(name, given(name), "only PEM is read; convert the store, and write PEM")
    if given("ssl.endpoint.identification.algorithm").lower() not in {"", "https"}:
        raise _invalid(
            "ssl.endpoint.identification.algorithm",
            given("ssl.endpoint.identification.algorithm"),
            "it must be https: host names are always verified",
        )
    authorities = _certificates(given, "ssl.truststore.certificates", "ssl.truststore.location")
    chain = _certificates(given, "ssl.keystore.certificate.chain", "ssl.keystore.location")
    key = _private_key(given, "ssl.keystore.key", "ssl.keystore.location")
    return _checked(
        Security(is_tls=True, authorities=authorities, certificates=chain, private_key=key),
        "ssl.keystore",
        "ssl.truststore",
    )


def security_of_files(
    security_protocol: str = PLAINTEXT,
    ssl_cafile: str | Path | None = None,
    ssl_certfile: str | Path | None = None,
    ssl_keyfile: str | Path | None = None,
    *,
    sasl_mechanism: str | None = None,
    sasl_plain_username: str | None = None,
    sasl_plain_password: str | None = None,
    sasl_oauth_token_provider: TokenProvider | None = None,
) -> Security:
    """Return the security that a Python client's arguments describe.

    The arguments are named as in aiokafka and kafka-python.

    Args:
        security_protocol: PLAINTEXT, SSL or SASL_SSL.
        ssl_cafile: certificates of the authorities; None: the system's.
        ssl_certfile: the client's certificate chain, and its key unless ``ssl_keyfile`` is given.
        ssl_keyfile: the client's private key.
        sasl_mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER, for SASL_SSL.
        sasl_plain_username: the user, also for SCRAM.
        sasl_plain_password: the user's password.
        sasl_oauth_token_provider: gives the tokens of OAUTHBEARER.

    Raises:
        TidegaugeError: INVALID_CONFIG.
    """
    protocol = security_protocol.upper()
    if protocol == SASL_PLAINTEXT:
        raise _invalid("security_protocol", protocol, f"over gRPC credentials travel under TLS alone; write {SASL_SSL}")
    if protocol not in {*PROTOCOLS, SASL_SSL}:
        raise _invalid("security_protocol", security_protocol, f"it must be {PLAINTEXT}, {SSL} or {SASL_SSL}")
    login = None
    if protocol == SASL_SSL:
        login = Login(
            sasl_mechanism or SASL_PLAIN,
            {"username": sasl_plain_username or "", "password": sasl_plain_password or ""},
            None if sasl_oauth_token_provider is None else sasl_oauth_token_provider.token,
        )
        login.check()
    elif sasl_mechanism or sasl_plain_username or sasl_plain_password or sasl_oauth_token_provider:
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG, f"SASL credentials without security_protocol='{SASL_SSL}' have no effect"
        )
    if protocol == PLAINTEXT:
        if ssl_cafile or ssl_certfile or ssl_keyfile:
            raise TidegaugeError(ErrorCode.INVALID_CONFIG, "TLS files without security_protocol='SSL' have no effect")
        return PLAIN
    if ssl_keyfile and not ssl_certfile:
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, "ssl_keyfile needs ssl_certfile, the certificate of that key")
    files = {"ssl_cafile": ssl_cafile, "ssl_certfile": ssl_certfile, "ssl_keyfile": ssl_keyfile or ssl_certfile}

    def given(name: str) -> str:
        return str(files.get(name) or "")

    authorities = _certificates(given, "", "ssl_cafile")
    chain = _certificates(given, "", "ssl_certfile")
    key = _private_key(given, "", "ssl_keyfile")
    security = Security(is_tls=True, authorities=authorities, certificates=chain, private_key=key, login=login)
    return _checked(security, "ssl_certfile", "ssl_cafile")


def _certificates(given: Callable[[str], str], inline: str, location: str) -> bytes | None:
    """Return the certificates of an inline text or a file; None without either."""
    text, where = _text(given, inline, location)
    if not text:
        return None
    blocks = [body for kind, body in _blocks(text) if kind == "CERTIFICATE"]
    if not blocks:
        raise _no_block(text, f"{where} holds no certificate in PEM (BEGIN CERTIFICATE)")
    return b"".join(blocks)


def _private_key(given: Callable[[str], str], inline: str, location: str) -> bytes | None:
    text, where = _text(given, inline, location)
    if not text:
        return None
    keys = [(kind, body) for kind, body in _blocks(text) if kind.endswith("PRIVATE KEY")]
    if not keys:
        raise _no_block(text, f"{where} holds no private key in PEM (BEGIN PRIVATE KEY)")
    kind, body = keys[0]
    if kind.startswith("ENCRYPTED"):
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG, f"The private key in {where} is encrypted; write it without a password"
        )
    return body


def _no_block(text: str, what: str) -> TidegaugeError:
    """Return the error, with advice if the text's line breaks were lost."""
    if _RUN_TOGETHER.search(text.strip()):
        what += (
            "; its first line ends the text or runs into the next one: in a properties file write \\n for a line "
            "break, or a space before the \\ that continues a line"
        )
    return TidegaugeError(ErrorCode.INVALID_CONFIG, what)


def _text(given: Callable[[str], str], inline: str, location: str) -> tuple[str, str]:
    """Return a setting's PEM text, inline or in a file, and its place."""
    if inline and given(inline):
        return given(inline), inline
    if not given(location):
        return "", location
    path = Path(given(location)).expanduser()
    try:
        return path.read_text(encoding="ascii", errors="replace"), f"{location}={path}"
    except OSError as problem:
        raise _invalid(location, str(path), f"the file can't be read: {problem.strerror}") from None


def _blocks(text: str) -> Iterator[tuple[str, bytes]]:
    """Yield kind and PEM text of each block, with lines of the standard length (RFC 7468)."""
    for kind, body in _BLOCK.findall(text.replace("\\n", "\n")):
        bare = "".join(body.split())
        lines = [bare[at : at + _LINE_LENGTH] for at in range(0, len(bare), _LINE_LENGTH)]
        yield kind, "\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""]).encode()


def _checked(security: Security, own: str, trusted: str) -> Security:
    """Return the security after OpenSSL has checked its files and key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if security.authorities is not None:
        try:
            context.load_verify_locations(cadata=security.authorities.decode())
        except ssl.SSLError as problem:
            raise TidegaugeError(
                ErrorCode.INVALID_CONFIG, f"{trusted}: a certificate can't be read: {problem.reason or problem}"
            ) from None
    if (security.certificates is None) != (security.private_key is None):
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, f"{own}: a certificate and its private key belong together")
    if security.certificates is not None:
        _load_own(context, security, own)
    return security


def _load_own(context: ssl.SSLContext, security: Security, own: str) -> None:
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:  # OpenSSL reads a chain and its key from files only
        file.write((security.private_key or b"") + (security.certificates or b""))
        file.flush()
        try:
            context.load_cert_chain(file.name)
        except ssl.SSLError as problem:
            why = "the private key does not belong to the first certificate"
            if problem.reason != "KEY_VALUES_MISMATCH":
                why = f"certificate or private key can't be read: {problem.reason or problem}"
            raise TidegaugeError(ErrorCode.INVALID_CONFIG, f"{own}: {why}") from None


def _invalid(setting: str, value: str, why: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {setting}: {why}")


def key_of_listener(security: Security, *, needs_client_certificate: bool) -> tuple[bytes, bytes]:
    """Return a TLS listener's private key and certificates.

    Raises:
        TidegaugeError: INVALID_CONFIG, a certificate or an authority is missing.
    """
    if security.certificates is None or security.private_key is None:
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            "An SSL listener needs a private key and a certificate: write ssl.keystore.location=FILE.pem with both",
        )
    if needs_client_certificate and security.authorities is None:
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            "ssl.client.auth=required needs the authorities to trust: write ssl.truststore.location=FILE",
        )
    return security.private_key, security.certificates


def server_context(security: Security, verify: ssl.VerifyMode) -> ssl.SSLContext:
    """Return Python's TLS context for a listener that does not speak gRPC.

    Args:
        security: with a certificate and its key.
        verify: whether clients may or must present a trusted certificate (``ssl.client.auth``).
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load_own(context, security, "ssl.keystore")
    if verify is not ssl.CERT_NONE:
        context.verify_mode = verify
        if security.authorities is None:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        else:
            context.load_verify_locations(cadata=security.authorities.decode())
    return context


def client_context(security: Security) -> ssl.SSLContext:
    """Return a TLS context that verifies the peer, for non-gRPC connections."""
    context = ssl.create_default_context(cadata=None if security.authorities is None else security.authorities.decode())
    if security.certificates is not None:
        _load_own(context, security, "ssl.keystore")
    return context


def verifying_context(security: Security) -> ssl.SSLContext:
    """Return a TLS context that verifies as gRPC does, to diagnose failed handshakes."""
    context = client_context(security)
    context.set_alpn_protocols(["h2"])
    return context
