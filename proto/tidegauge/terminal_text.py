"""Text of unknown origin, such as a line of a log, as a terminal may be given it. Pure."""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")


def shown_controls(text: str) -> str:
    r"""Return a text with its control characters written out, such as ``\x1b[2J``.

    Tabs stay. C1 controls are included, because terminals take U+009B for ``ESC [`` (ECMA-48, section 5.3).

    Args:
        text: one line, without its line feed.
    """
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
