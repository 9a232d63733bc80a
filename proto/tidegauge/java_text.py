"""Numbers and names as Kafka's Java writes them, where they stand in znodes and in errors."""

from __future__ import annotations

from urllib.parse import quote, unquote

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


def sanitized(name: str) -> str:
    """Return a name as Kafka puts it into a znode's path: percent-encoded (``Sanitizer.sanitize``)."""
    return quote(name, safe="-._").replace("~", "%7E").replace("*", "%2A")


def desanitized(name: str) -> str:
    """Return the name that ``sanitized`` encoded."""
    return unquote(name)
