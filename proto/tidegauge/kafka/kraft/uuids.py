"""Reads UUIDs as Kafka writes them."""

from __future__ import annotations

import base64
import re

_TEXT = re.compile(r"[A-Za-z0-9_-]{22}")


def uuid_of(text: str) -> bytes:
    """Return the sixteen bytes of a UUID in base64url without padding (``Uuid.fromString``).

    Raises:
        ValueError: the text is not 22 characters of base64url.
    """
    if _TEXT.fullmatch(text) is None:
        raise ValueError("a UUID has 22 characters of base64url")
    return base64.urlsafe_b64decode(text + "==")
