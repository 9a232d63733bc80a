"""The result and the errors of every SASL mechanism. Pure.

Source: ``SaslServer``, ``SaslException``, ``SaslAuthenticationException``.
"""

from __future__ import annotations

from typing import Protocol


class InvalidCredentials(Exception):
    """The credentials are not accepted; the text is for the broker's log, the client gets one sentence for all reasons.

    Never holds a password, a token or a proof.
    """


class AuthenticationRefused(Exception):
    """The credentials are not accepted; the text is the client's too, and gives nothing away."""


class Exchange(Protocol):
    """One authentication by one mechanism, from the client's first token to the last response.

    Attributes:
        principal_name: the client's proved identity; None until then.
        expires_ms: when the credential expires, by the broker's own clock, in ms; None if it does not.
    """

    principal_name: str | None
    expires_ms: int | None

    def evaluate(self, token: bytes, now_ms: int) -> bytes:
        """Take the client's next token; return the server's.

        Args:
            token: as it was received.
            now_ms: the time, by the broker's own clock.

        Raises:
            InvalidCredentials: the exchange has failed.
            AuthenticationRefused: the exchange has failed, and the client learns why.
        """
        ...
