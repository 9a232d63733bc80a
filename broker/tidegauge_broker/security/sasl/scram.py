"""SASL/SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677): neither side sends the password. Pure except for hashes.

Rules:
    1. The stored credential has salt, StoredKey, ServerKey and iterations; nothing from which the password follows.
    2. As in Kafka, only the GS2 header ``n`` is supported (no channel binding), and names are ASCII.
    3. The extension ``tokenauth=true`` names a delegation token; there are none, so it fails.
Source: ``ScramSaslServer``, ``ScramMessages``, ``ScramFormatter``, ``ScramCredentialUtils``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable

from tidegauge.cluster_metadata.credentials import ScramCredential
from tidegauge.sasl_client import HASHES, MIN_ITERATIONS
from tidegauge_broker.security.sasl.exchange import AuthenticationRefused, InvalidCredentials

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_FIRST = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,(?P<bare>(?:m={_VALUE},)?n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE})"
    rf"(?P<extensions>{_EXTENSIONS}))"
)
_FINAL = re.compile(rf"(?P<bare>c={_BASE64},r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})")
_TOKEN_AUTH = re.compile(r",tokenauth=true(?:,|$)", re.IGNORECASE)


def has_password(credential: ScramCredential, mechanism: str, password: str) -> bool:
    """Whether a credential belongs to a password: costly, by design of PBKDF2, and in constant time after it.

    Args:
        credential: as it is stored.
        mechanism: a key of ``HASHES``.
        password: as the user gives it.
    """
    algorithm = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), credential.salt, credential.iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    return hmac.compare_digest(hashlib.new(algorithm, client_key).digest(), credential.stored_key)


class ScramExchange:
    """One authentication; see the module.

    Args:
        mechanism: a key of ``HASHES``.
        credential_of_user: returns a user's credential for it, or None.
        server_nonce: random, printable, used once.
    """

    expires_ms: int | None = None

    def __init__(
        self, mechanism: str, credential_of_user: Callable[[str], ScramCredential | None], server_nonce: str
    ) -> None:
        self.principal_name: str | None = None
        self._hash = HASHES[mechanism]
        self._mechanism = mechanism
        self._credential_of_user = credential_of_user
        self._server_nonce = server_nonce
        self._credential: ScramCredential | None = None
        self._name = ""
        self._client_first = ""
        self._server_first = ""
        self._nonce = ""

    def evaluate(self, token: bytes, now_ms: int) -> bytes:
        """Take the first or the final message of the client.

        Raises:
            InvalidCredentials: no such user, a proof that is wrong, or a malformed message.
            AuthenticationRefused: the client asks to act for another user.
        """
        del now_ms
        text = token.decode(errors="replace")
        return self._first(text) if self._credential is None else self._final(text, self._credential)

    def _first(self, text: str) -> bytes:
        found = _FIRST.fullmatch(text)
        if found is None:
            raise InvalidCredentials("Invalid SCRAM client first message format")
        if _TOKEN_AUTH.search(found["extensions"]):
            raise InvalidCredentials("Token Authentication failed: there are no delegation tokens")
        name = found["name"].replace("=2C", ",").replace("=3D", "=")
        credential = self._credential_of_user(name)
        if credential is None:
            raise InvalidCredentials("Authentication failed: Invalid user credentials")
        if found["authzid"] not in {None, name}:
            raise AuthenticationRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if credential.iterations < MIN_ITERATIONS:
            raise InvalidCredentials(
                f"Iterations {credential.iterations} is less than the minimum {MIN_ITERATIONS} for {self._mechanism}"
            )
        self._credential, self._name, self._client_first = credential, name, found["bare"]
        self._nonce = found["nonce"] + self._server_nonce
        salt = base64.b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._server_first.encode()

    def _final(self, text: str, credential: ScramCredential) -> bytes:
        found = _FINAL.fullmatch(text)
        if found is None:
            raise InvalidCredentials("Invalid SCRAM client final message format")
        # Kafka 3.9 asks for the nonce at the end only (ScramSaslServer.evaluateResponse): librdkafka before 2.6.1 puts
        # its own part before it once more. The proof is over the message as it was sent, so this gives nothing away.
        if not hmac.compare_digest(found["nonce"][-len(self._nonce) :], self._nonce):
            raise InvalidCredentials("Invalid client nonce in the final client message.")
        signed = ",".join([self._client_first, self._server_first, found["bare"]]).encode()
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        proof = base64.b64decode(found["proof"])
        if len(proof) != len(signature):
            raise InvalidCredentials("Invalid client credentials")
        client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key):
            raise InvalidCredentials("Invalid client credentials")
        self.principal_name = self._name
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, signed, self._hash))
