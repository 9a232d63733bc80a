"""SASL/OAUTHBEARER (RFC 7628) with unsecured tokens (RFC 7515, ``alg`` none): for tests; anyone can make one. Pure.

Rules:
    1. A token has three parts, the third empty; ``exp`` is needed and in the future, ``iat`` not in the future and
       before ``exp``, the principal's claim is a text, and every required scope is there.
    2. A token that is not accepted has a response with the reason's status; the client acknowledges it with 0x01, and
       then the authentication has failed (RFC 7628, section 3.2.3).
    3. The session ends when the token expires.
Source: ``OAuthBearerSaslServer``, ``OAuthBearerUnsecuredValidatorCallbackHandler``, ``OAuthBearerUnsecuredJws``.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tidegauge.wall_time import WallTime
from tidegauge_broker.security.sasl.exchange import AuthenticationRefused, InvalidCredentials

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_INITIAL = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01", re.DOTALL
)
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_ACKNOWLEDGED = b"\x01"
_PARTS = 3


class TokenRules(NamedTuple):
    """The options ``unsecuredValidator...`` of the JAAS entry.

    Attributes:
        principal_claim: names the claim with the principal's name.
        scope_claim: names the claim with the scopes.
        required_scopes: that every token must have.
        clock_skew_ms: how far the clocks of broker and issuer may be apart.
    """

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scopes: tuple[str, ...] = ()
    clock_skew_ms: int = 0

    @classmethod
    def of(cls, options: Mapping[str, str]) -> TokenRules:
        """Return the rules by the options of a JAAS entry.

        Raises:
            ValueError: the clock skew is not a number of ms from 0 on.
        """

        def given(name: str, otherwise: str) -> str:
            return options.get(f"unsecuredValidator{name}", "").strip() or otherwise

        skew = given("AllowableClockSkewMs", "0")
        if not skew.isdecimal():
            raise ValueError(f"unsecuredValidatorAllowableClockSkewMs must be a number of ms from 0 on, not {skew!r}")
        return cls(
            given("PrincipalClaimName", "sub"),
            given("ScopeClaimName", "scope"),
            tuple(given("RequiredScope", "").split()),
            int(skew),
        )


class _Invalid(Exception):
    """The token is not accepted; the text is the status of the response."""


class OauthBearerExchange:
    """One authentication; see the module.

    Args:
        rules: by which tokens are accepted.
        wall: how far the wall clock, in whose time tokens begin and expire, is ahead of the broker's own clock.
    """

    def __init__(self, rules: TokenRules, wall: WallTime | None = None) -> None:
        self._wall = WallTime() if wall is None else wall
        self.principal_name: str | None = None
        self.expires_ms: int | None = None
        self._rules = rules
        self._error: str | None = None

    def evaluate(self, token: bytes, now_ms: int) -> bytes:
        """Check the token, or take the acknowledgement of its refusal.

        Raises:
            InvalidCredentials: the message is malformed.
            AuthenticationRefused: the token was not accepted, or the client asks to act for another principal.
        """
        if token == _ACKNOWLEDGED and self._error is not None:
            raise AuthenticationRefused(self._error)
        self._error = None
        value, authorization_id = _initial(token.decode(errors="replace"))
        try:
            name, expires_ms = _checked(value, self._rules, self._wall.at(now_ms))
        except _Invalid as problem:
            self._error = str(problem)
            return self._error.encode()
        if authorization_id not in {"", name}:
            raise AuthenticationRefused(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({name})"
            )
        self.principal_name, self.expires_ms = name, expires_ms - self._wall.ahead_ms
        return b""


def _initial(text: str) -> tuple[str, str]:
    """Return the token and the authorization id of the client's first message."""
    found = _INITIAL.fullmatch(text)
    if found is None:
        raise InvalidCredentials("Invalid OAUTHBEARER client first message")
    parts = (pair.partition("=") for pair in str(found["pairs"]).split("\x01") if pair)
    pairs = {name: value for name, _, value in parts}
    if "auth" not in pairs:
        raise InvalidCredentials("Invalid OAUTHBEARER client first message: 'auth' not specified")
    auth = _AUTH.fullmatch(pairs["auth"])
    if auth is None or auth["scheme"].lower() != "bearer":
        raise InvalidCredentials("Invalid OAUTHBEARER client first message: invalid 'auth' format")
    return auth["token"], found["authzid"] or ""


def _checked(token: str, rules: TokenRules, wall_ms: int) -> tuple[str, int]:
    """Return a token's principal name and expiration in epoch ms; rule 1."""
    parts = token.split(".")
    if len(parts) != _PARTS or not parts[0] or not parts[1] or parts[2]:
        raise _invalid()
    header, claims = _object(parts[0]), _object(parts[1])
    if header.get("alg") != "none":
        raise _invalid()
    name = claims.get(rules.principal_claim)
    expires_s, issued_s = _number(claims, "exp"), _number(claims, "iat")
    if not isinstance(name, str) or not name.strip() or expires_s is None:
        raise _invalid()
    if wall_ms - rules.clock_skew_ms >= 1000 * expires_s:
        raise _invalid()
    if issued_s is not None and (1000 * issued_s > wall_ms + rules.clock_skew_ms or expires_s <= issued_s):
        raise _invalid()
    missing = set(rules.required_scopes) - set(_scopes(claims.get(rules.scope_claim)))
    if missing:
        raise _Invalid(f'{{"status":"insufficient_scope", "scope":"[{", ".join(rules.required_scopes)}]"}}')
    return name, round(expires_s * 1000)


def _object(part: str) -> dict[str, Any]:
    """Return a JSON object's members (``OAuthBearerUnsecuredJws``).

    Each is a text, a number or a list of texts.
    """
    try:
        text = base64.b64decode(part + "=" * (-len(part) % 4), validate=True)
        found = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):  # UnicodeDecodeError and binascii.Error are ValueErrors
        raise _invalid() from None
    return {name: _converted(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _converted(value: Any) -> Any:
    if isinstance(value, list):
        return [_converted(one) if isinstance(one, str) else json.dumps(one) for one in value]
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return "" if isinstance(value, dict) else value


def _number(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    try:
        number = float(value) if not isinstance(value, str) else None
    except (TypeError, OverflowError):
        number = None
    if number is None or abs(number) > _LARGEST_S:
        raise _invalid()
    return number


_LARGEST_S = 2.0**63 / 1000


def _scopes(value: Any) -> Sequence[str]:
    found = [value] if isinstance(value, str) else value or []
    if not isinstance(found, list):
        raise _invalid()
    return [one.strip() for one in found if one.strip()]


def _invalid() -> _Invalid:
    return _Invalid('{"status":"invalid_token"}')
