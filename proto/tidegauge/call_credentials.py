"""The credential that a gRPC call carries in its metadata: a user and a password, or a token. Pure.

Rules:
    1. ``authorization`` is ``Basic`` with user and password (RFC 7617, UTF-8), or ``Bearer`` with a token (RFC 6750).
    2. ``tidegauge-sasl-mechanism`` names the mechanism whose users are meant. Without it a broker looks for the user
       in all mechanisms: other programs, such as grpcurl, need to know ``authorization`` alone.
    3. A password travels as it is, also for SCRAM's users, since a call has no room for an exchange. So there is TLS
       under it, always.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import NamedTuple, TypeAlias

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.sasl_client import OAUTHBEARER, Login

AUTHORIZATION = "authorization"
MECHANISM = "tidegauge-sasl-mechanism"
_BEARER = re.compile(r"[-_~+/.a-zA-Z0-9]+=*", re.ASCII)


class Basic(NamedTuple):
    """A user and a password."""

    user: str
    password: str

    def __repr__(self) -> str:
        """Return a text without the password: it may reach a log."""
        return f"Basic({self.user!r})"


class Bearer(NamedTuple):
    """A token."""

    token: str

    def __repr__(self) -> str:
        """Return a text without the token: it may reach a log."""
        return "Bearer()"


CallCredential: TypeAlias = Basic | Bearer


def metadata_of(login: Login, now_ms: int) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call that a login makes.

    Args:
        login: the credentials.
        now_ms: wall clock, for a new token.
    """
    if login.mechanism == OAUTHBEARER:
        value = f"Bearer {login.token(now_ms)}"
    else:
        pair = f"{login.options['username']}:{login.options['password']}"
        value = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return ((AUTHORIZATION, value), (MECHANISM, login.mechanism))


def check_for_calls(login: Login) -> None:
    """Check that calls can carry a login.

    Raises:
        TidegaugeError: INVALID_CONFIG, the user's name has a colon, which ends it in ``Basic``.
    """
    if login.mechanism != OAUTHBEARER and ":" in login.options["username"]:
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG, "a user whose name has a colon can't use gRPC (RFC 7617); take another name"
        )


def credential_of(value: str) -> CallCredential:
    """Read the value of ``authorization``.

    Raises:
        ValueError: it is neither ``Basic`` nor ``Bearer``, or malformed; the text has nothing of the credential.
    """
    scheme, _, rest = value.partition(" ")
    rest = rest.strip(" ")
    if scheme.lower() == "bearer":
        if _BEARER.fullmatch(rest) is None:
            raise ValueError("the token in the call's metadata is malformed")
        return Bearer(rest)
    if scheme.lower() != "basic":
        raise ValueError("the authorization in the call's metadata is neither Basic nor Bearer")
    try:
        user, colon, password = base64.b64decode(rest, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise ValueError("user and password in the call's metadata are malformed") from None
    if not colon:
        raise ValueError("user and password in the call's metadata are malformed")
    return Basic(user, password)
