"""The principal that a connection acts for. Pure.

Source: ``KafkaPrincipal``, ``SecurityUtils.parseKafkaPrincipal``.
"""

from __future__ import annotations

from typing import NamedTuple

USER = "User"


class Principal(NamedTuple):
    """A type, which is ``User`` for all that authenticate here, and a name."""

    kind: str
    name: str

    def __str__(self) -> str:
        """Return the form of settings and ACLs, ``User:alice``."""
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""The principal of a connection that has not authenticated itself."""


def principal_of(text: str) -> Principal:
    """Return the principal that a text like ``User:alice`` names.

    Raises:
        ValueError: there is no colon in it, or nothing before it.
    """
    kind, separator, name = text.partition(":")
    if not separator or not kind or not name:
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return Principal(kind, name)
