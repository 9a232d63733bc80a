"""SASL/PLAIN (RFC 4616): name and password in clear, so it belongs under TLS. Pure.

Source: ``PlainSaslServer``, ``PlainServerCallbackHandler``.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from tidegauge_broker.security.sasl.exchange import AuthenticationRefused

_TOKENS = 3


class PlainExchange:
    """One authentication; see the module.

    Args:
        passwords: by user.
    """

    expires_ms: int | None = None

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self.principal_name: str | None = None
        self._passwords = passwords

    def evaluate(self, token: bytes, now_ms: int) -> bytes:
        """Compare the password; the only message of the exchange.

        Raises:
            AuthenticationRefused: the message is malformed, or name and password do not belong together.
        """
        del now_ms
        parts = token.decode(errors="replace").split("\0", _TOKENS)
        if len(parts) != _TOKENS:
            raise AuthenticationRefused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise AuthenticationRefused("Authentication failed: username not specified")
        if not password:
            raise AuthenticationRefused("Authentication failed: password not specified")
        # An unknown user costs as much time as a known one: names can't be found out by it.
        expected = self._passwords.get(user)
        is_equal = hmac.compare_digest(_bytes(password), _bytes(expected or "\0"))
        if expected is None or not is_equal:
            raise AuthenticationRefused("Authentication failed: Invalid username or password")
        if authorization_id not in {"", user}:
            raise AuthenticationRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.principal_name = user
        return b""


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
