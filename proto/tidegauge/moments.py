"""Moments on the command line. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

_AGO = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_CLOCK = re.compile(r"\d{1,2}:\d\d(:\d\d(\.\d{1,6})?)?")


def parse_moment(text: str, now: datetime) -> int:
    """Parse a moment to milliseconds since 1970.

    ``30s`` (also ms, m, h, d) is that long ago. ``12:30`` or ``12:30:15.250`` is today. An ISO date and time may bear a
    zone. A bare number is ms since 1970. Without a zone it is ``now``'s.

    Raises:
        ValueError: it is none of these.
    """
    if text.isdecimal():
        return int(text)
    ago = _AGO.fullmatch(text)
    if ago is not None:
        moment = now - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
    else:
        hour, _, rest = text.partition(":")
        is_today = _CLOCK.fullmatch(text) is not None
        try:
            moment = datetime.fromisoformat(f"{now.date()}T{int(hour):02d}:{rest}" if is_today else text)
        except ValueError:
            raise ValueError(
                f"{text!r} is no moment; write 30s (ago), 12:30:15 (today), 2026-11-20T12:30:15, or ms since 1970"
            ) from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=now.tzinfo)
    return round(moment.timestamp() * 1000)
