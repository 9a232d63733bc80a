"""Numbers and names as Kafka's Java writes and reads them in znodes, settings and errors."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

_WHOLE = re.compile(r"[+-]?[0-9]+")
_ANY = re.compile(r"([+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))[fFdD]?")
_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e7


def double_text(value: float) -> str:
    """Return a number as ``Double.toString`` writes it: ``1.0``, ``2.147483647E9``, ``NaN``."""
    if value != value:  # noqa: PLR0124 - only NaN differs from itself
        return "NaN"
    if value in {float("inf"), float("-inf")}:
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        digits = repr(value)
        return digits if "e" not in digits else f"{value:.{_digits_behind_point(digits)}f}"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = f"{_scientific(abs(value))}".partition("e")
    return f"{sign}{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def _digits_behind_point(digits: str) -> int:
    mantissa, _, exponent = digits.partition("e")
    return len(mantissa.partition(".")[2]) - int(exponent)


def _scientific(value: float) -> str:
    """Return the shortest digits that read back as the value, in scientific notation."""
    for precision in range(17):
        text = f"{value:.{precision}e}"
        if float(text) == value:
            return text
    return f"{value:.17e}"


def java_int(text: str) -> int:
    """Return the number that ``Integer.parseInt`` reads, but of any size.

    Python's ``int`` is not enough: it also reads ``1_000`` and `` 1 ``.

    Raises:
        ValueError: it is no number to Java.
    """
    if _WHOLE.fullmatch(text) is None:
        raise ValueError(text)
    return int(text)


def java_double(text: str) -> float:
    """Return the number that ``Double.parseDouble`` reads, without surrounding space or hexadecimals.

    Raises:
        ValueError: it is no number to Java, such as ``1_000`` and ``inf``.
    """
    found = _ANY.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return float(found[1])


def sanitized(name: str) -> str:
    """Return a name as Kafka puts it into a znode's path: percent-encoded (``Sanitizer.sanitize``)."""
    return quote(name, safe="-._").replace("~", "%7E").replace("*", "%2A")


def desanitized(name: str) -> str:
    """Return the name that ``sanitized`` encoded."""
    return unquote(name)
