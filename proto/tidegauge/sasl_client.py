"""The client's side of SASL: PLAIN, SCRAM-SHA-256 and -512, OAUTHBEARER with unsecured tokens. Pure except hashes.

Rules:
    1. ``Login`` has the credentials; it begins one exchange for each authentication. Its content is never printed.
    2. By SCRAM the server proves that it knows the password too: a wrong signature ends the authentication (RFC 5802).
    3. A refused OAUTHBEARER token has an error as its challenge; the client acknowledges it with one byte (RFC 7628).
    4. A session that ends is renewed when 85 to 95 % of its time are over, at random (KIP-368).
Source: ``SaslClientAuthenticator``, ``ScramSaslClient``, the JDK's ``PlainClient``, ``OAuthBearerSaslClient``,
``OAuthBearerUnsecuredLoginCallbackHandler``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Protocol

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.jaas import login_module_of
from tidegauge.lazy_dataclasses import dataclass

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Hash algorithm by mechanism."""
MECHANISMS = (PLAIN, *HASHES, OAUTHBEARER)
MIN_ITERATIONS = 4_096
_MAX_ITERATIONS = 1_000_000
"""Above it a server could keep this side busy for seconds; Kafka's tools go up to 16,384."""
_RENEWED_AT, _JITTER = 0.85, 0.10
_NO_ENTRY = 'sasl.jaas.config is missing: write CLASS required username="NAME" password="PASSWORD";'
_CLAIM = "unsecuredLoginStringClaim_"
_NUMBER = "unsecuredLoginNumberClaim_"
_LIST = "unsecuredLoginListClaim_"
_LIFETIME = "unsecuredLoginLifetimeSeconds"
_DEFAULT_LIFETIME_SECONDS = 3_600.0


class AuthenticationFailed(Exception):
    """The peer does not accept the credentials, or does not know them itself; the text has nothing of them."""


class ClientExchange(Protocol):
    """One authentication."""

    def respond(self, challenge: bytes | None) -> bytes | None:
        """Return the next token.

        Args:
            challenge: the peer's last token; None at the begin.

        Returns:
            The token to send; None: the authentication is over.

        Raises:
            AuthenticationFailed: see there.
        """
        ...


@dataclass(frozen=True, slots=True)
class Login:
    """This side's identity and credentials.

    Attributes:
        mechanism: one of ``MECHANISMS``.
        options: of the JAAS entry: ``username`` and ``password``, or ``unsecuredLogin...`` for OAUTHBEARER.
        token_provider: returns the token of OAUTHBEARER; None: an unsecured one is made by the options.
    """

    mechanism: str
    options: Mapping[str, str] = field(repr=False)
    token_provider: Callable[[], str] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, mechanism: str, jaas_config: str | None) -> Login:
        """Return the login by a mechanism and the value of ``sasl.jaas.config``.

        Raises:
            TidegaugeError: INVALID_CONFIG.
        """
        if mechanism not in MECHANISMS:
            raise _no_mechanism(mechanism)
        if not jaas_config:
            raise _invalid(_NO_ENTRY)
        try:
            login = cls(mechanism, login_module_of(jaas_config).options)
        except ValueError as problem:
            raise _invalid(f"sasl.jaas.config: {problem}") from None
        login.check()
        return login

    def check(self) -> None:
        """Check that there is what the mechanism needs.

        Raises:
            TidegaugeError: INVALID_CONFIG.
        """
        if self.mechanism == OAUTHBEARER:
            if self.token_provider is None:
                unsecured_token(self.options, 0)
            return
        if self.mechanism not in MECHANISMS:
            raise _no_mechanism(self.mechanism)
        for name in ("username", "password"):
            if not self.options.get(name):
                raise _invalid(f"sasl.jaas.config has no {name}, which {self.mechanism} needs")

    def token(self, now_ms: int) -> str:
        """Return a token for OAUTHBEARER, issued now if this side makes it.

        Args:
            now_ms: wall clock.
        """
        return unsecured_token(self.options, now_ms) if self.token_provider is None else self.token_provider()

    def exchange(self, now_ms: int, nonce: str) -> ClientExchange:
        """Begin an authentication.

        Args:
            now_ms: wall clock, for a new token.
            nonce: random, printable, used once.
        """
        if self.mechanism == PLAIN:
            return _Plain(self.options["username"], self.options["password"])
        if self.mechanism == OAUTHBEARER:
            return _OauthBearer(self.token(now_ms))
        return _Scram(self.mechanism, self.options["username"], self.options["password"], nonce)


def renewed_after_ms(lifetime_ms: int, random: float) -> int | None:
    """Return when to renew a session (rule 4), in ms; None: never.

    Args:
        lifetime_ms: as the response to the last token says.
        random: from 0 to 1.
    """
    return int(lifetime_ms * (_RENEWED_AT + _JITTER * random)) if lifetime_ms > 0 else None


class _Plain:
    """RFC 4616: one message."""

    def __init__(self, user: str, password: str) -> None:
        self._message: bytes | None = f"\0{user}\0{password}".encode()

    def respond(self, challenge: bytes | None) -> bytes | None:
        del challenge
        message, self._message = self._message, None
        return message


class _OauthBearer:
    """RFC 7628: the token, and an acknowledgement of its refusal."""

    def __init__(self, token: str) -> None:
        self._token = token

    def respond(self, challenge: bytes | None) -> bytes | None:
        if challenge is None:
            return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()
        return b"\x01" if challenge else None


class _Scram:
    """RFC 5802, without channel binding."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._password = password
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={name},r={nonce}"
        self._signature: bytes | None = None

    def respond(self, challenge: bytes | None) -> bytes | None:
        if challenge is None:
            return f"n,,{self._first}".encode()
        fields = _fields(challenge)
        if self._signature is None:
            return self._final(challenge.decode(errors="replace"), fields)
        if "e" in fields:
            raise AuthenticationFailed(f"the peer refuses the proof: {fields['e']}")
        if not hmac.compare_digest(_decoded(fields.get("v", "")), self._signature):
            raise AuthenticationFailed("the peer does not know the password itself: its signature is wrong")
        return None

    def _final(self, server_first: str, fields: Mapping[str, str]) -> bytes:
        nonce, salt, count = fields.get("r", ""), _decoded(fields.get("s", "")), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce or not salt:
            raise AuthenticationFailed("the peer's first SCRAM message is malformed")
        iterations = int(count) if count.isdecimal() and len(count) < 12 else 0
        if not MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:
            raise AuthenticationFailed(
                f"the peer wants {count[:12]!r} iterations; at least {MIN_ITERATIONS} are needed"
            )
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        bare = f"c=biws,r={nonce}"
        signed = f"{self._first},{server_first},{bare}".encode()
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = hmac.digest(stored_key, signed, self._hash)
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), signed, self._hash)
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()


def _fields(message: bytes) -> dict[str, str]:
    parts = (part.partition("=") for part in message.decode(errors="replace").split(","))
    return {name: value for name, _, value in parts}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return b""


def unsecured_token(options: Mapping[str, str], now_ms: int) -> str:
    """Return a token without a signature (RFC 7519, section 6).

    Args:
        options: ``unsecuredLoginStringClaim_NAME``, ``...NumberClaim_NAME``, ``...ListClaim_NAME`` (the first character
            separates the members), ``unsecuredLoginLifetimeSeconds``.
        now_ms: wall clock: when it is issued.

    Raises:
        TidegaugeError: INVALID_CONFIG, there is no claim with the principal's name, or a number is none.
    """
    claims: dict[str, object] = {}
    try:
        for name, text in options.items():
            if name.startswith(_CLAIM):
                claims[name.removeprefix(_CLAIM)] = text
            elif name.startswith(_NUMBER):
                claims[name.removeprefix(_NUMBER)] = float(text)
            elif name.startswith(_LIST):
                claims[name.removeprefix(_LIST)] = text[1:].split(text[0]) if text else []
        lifetime_seconds = float(options.get(_LIFETIME) or _DEFAULT_LIFETIME_SECONDS)
    except ValueError:
        raise _invalid("an unsecuredLogin... option of sasl.jaas.config is no number") from None
    if not claims.get(options.get("unsecuredLoginPrincipalClaimName") or "sub"):
        raise _invalid(f'sasl.jaas.config has no {_CLAIM}sub="NAME", which OAUTHBEARER needs')
    issued_s = now_ms // 1000  # not in ms: rounded up, it could lie in the future of a broker that looks at it at once
    claims = {"iat": issued_s, "exp": issued_s + lifetime_seconds} | claims
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def _part(members: Mapping[str, object]) -> str:
    """Return a token's part, in the alphabet that Kafka's validator reads.

    Source: ``OAuthBearerUnsecuredJws.toMap``.
    """
    return base64.b64encode(json.dumps(members, separators=(",", ":")).encode()).decode().rstrip("=")


def _no_mechanism(mechanism: str) -> TidegaugeError:
    return _invalid(f"there is no SASL mechanism {mechanism} here; there are {', '.join(MECHANISMS)}")


def _invalid(why: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_CONFIG, why)
