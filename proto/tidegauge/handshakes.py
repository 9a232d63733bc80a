"""Explain failed TLS handshakes: from the messages of gRPC and OpenSSL to a sentence with a cure.

Contract: pure. ``client_reason`` is for the side that connects, ``server_reason`` and ``peer_reason`` are for the
broker; None means that the message is not about TLS. Each sentence ends with the setting to change.
"""

from __future__ import annotations

import re

_EXPIRED = ("certificate has expired", "certificate_expired", "alert certificate expired")
_NOT_YET = ("certificate is not yet valid",)
_WRONG_HOST = ("hostname verification", "hostname mismatch", "ip address mismatch", "not valid for")
_STRANGER = (
    "unable to get local issuer",
    "unable to get issuer",
    "self-signed",
    "self signed",
    "unknown ca",
    "unknown_ca",
    "tlsv1_alert_unknown_ca",
)
_NOT_TLS = ("wrong_version_number", "wrong version number", "http_request", "http request", "record layer failure")
_NO_CERTIFICATE = ("peer_did_not_return_a_certificate", "certificate_required", "certificate required")
_REFUSED = ("bad certificate", "bad_certificate", "handshake failure", "handshake_failure", "certificate unknown")
_NATIVE_LINE = re.compile(r"Handshake failed with (?:fatal )?error ([^\n]*)")


def _says(text: str, words: tuple[str, ...]) -> bool:
    return any(word in text for word in words)


def client_reason(details: str, host: str) -> str | None:
    """Return why TLS kept a client from connecting; None: another cause."""
    text = details.lower()
    if _says(text, _NOT_TLS):
        return (
            "the broker speaks plain text on this port; use the address of an SSL listener, or "
            "security.protocol=PLAINTEXT"
        )
    if _says(text, _WRONG_HOST):
        return (
            f"the broker's certificate is not valid for {host}; connect by a name in the certificate, or "
            f"issue one whose subjectAltName has {host}"
        )
    is_alert = "alert" in text
    if _says(text, _NO_CERTIFICATE):
        return (
            "the broker wants a client certificate (ssl.client.auth=required); give one with ssl.keystore.location "
            "(ssl_certfile and ssl_keyfile in Python)"
        )
    if is_alert and _says(text, (*_EXPIRED, *_STRANGER, *_REFUSED)):
        return (
            "the broker rejects this client's certificate; renew it if it has expired, else use one issued by an "
            "authority in the broker's ssl.truststore.location"
        )
    if _says(text, _EXPIRED):
        return "the broker's certificate has expired; issue a new one and start the broker with it"
    if _says(text, _NOT_YET):
        return "the broker's certificate is not valid yet; set the clocks right, or issue a new one"
    if _says(text, _STRANGER):
        return (
            "no authority that this client trusts has issued the broker's certificate; name the file with its "
            "authority in ssl.truststore.location (ssl_cafile in Python)"
        )
    if "ssl_error_ssl" in text:  # a broker that dies during the handshake gives another message
        return f"the TLS handshake failed: {_last_word(details)}; see the broker's log, which names the reason"
    return None


def server_reason(native_line: str) -> str | None:
    """Return why a handshake failed, from gRPC's log line; else None."""
    found = _NATIVE_LINE.search(native_line)
    if found is None:
        return None
    return peer_reason(found[1])


def peer_reason(details: str) -> str:
    """Return why a peer's handshake failed, from the TLS library's message."""
    text = details.lower()
    if _says(text, _NOT_TLS):
        return (
            "one side speaks plain text and the other TLS; clients of an SSL listener need security.protocol=SSL and "
            "ssl.truststore.location"
        )
    if _says(text, _NO_CERTIFICATE):
        return (
            "the client presented no certificate, and ssl.client.auth is required; give the client one with "
            "ssl.keystore.location"
        )
    if "alert" in text and _says(text, (*_STRANGER, *_REFUSED, *_EXPIRED)):
        return (
            "the client does not trust this broker's certificate; renew it if it has expired, else give the client "
            "its authority with ssl.truststore.location"
        )
    if _says(text, _EXPIRED):
        return "the peer's certificate has expired; issue a new one"
    if _says(text, _NOT_YET):
        return "the peer's certificate is not valid yet; set the clocks right, or issue a new one"
    if _says(text, _STRANGER):
        return (
            "no authority in ssl.truststore.location has issued the peer's certificate; add its authority there, or "
            "use a certificate issued by one that is there"
        )
    return f"{_last_word(details)}; check that both sides use the same port and protocol"


def _last_word(details: str) -> str:
    """Return OpenSSL's own description, without the numbers before it."""
    words = [part.strip() for part in details.split(":") if part.strip() not in {"", "OK"}]
    return words[-1] if words else details
