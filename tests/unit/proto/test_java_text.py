"""Numbers and names as Java writes them: what Kafka's brokers read in znodes, and clients in errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.java_text import desanitized, double_text, java_double, java_int, sanitized


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (1.5, "1.5"),
        (0.001, "0.001"),
        (0.00012, "1.2E-4"),
        (200_000.0, "200000.0"),
        (9_999_999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (2_147_483_647.0, "2.147483647E9"),
        (-2_147_483_648.0, "-2.147483648E9"),
        (1e19, "1.0E19"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_a_number_is_written_as_double_to_string_does(value: float, text: str) -> None:
    assert double_text(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_read_back_as_it_was(value: float) -> None:
    assert float(double_text(value)) == value


@pytest.mark.parametrize(
    ("name", "path"),
    [("a", "a"), ("a b", "a%20b"), ("a/b", "a%2Fb"), ("*", "%2A"), ("~", "%7E"), ("ü", "%C3%BC"), ("a-._1", "a-._1")],
)
def test_a_name_is_encoded_as_sanitizer_does(name: str, path: str) -> None:
    assert sanitized(name) == path
    assert desanitized(path) == name


@pytest.mark.parametrize("text", ["1_000", " 1", "1 ", "", "+", "1.0", "0x1", "\u0661"])
def test_what_python_alone_reads_is_no_whole_number(text: str) -> None:
    """Integer.parseInt, Long.parseLong: a setting of ``1_000`` would not be read by an Apache Kafka broker."""
    with pytest.raises(ValueError, match=r"^"):
        java_int(text)


@pytest.mark.parametrize("text", ["1_0.5", "inf", "nan", "infinity", "", ".", "e1", "1,5"])
def test_what_python_alone_reads_is_no_number(text: str) -> None:
    """Double.parseDouble."""
    with pytest.raises(ValueError, match=r"^"):
        java_double(text)


def test_numbers_that_java_reads() -> None:
    """With a sign, and doubles with the suffixes of Java's literals."""
    assert [java_int(text) for text in ("7", "+7", "-7", "007")] == [7, 7, -7, 7]
    assert [java_double(text) for text in ("0.5", ".5", "5.", "5e-1", "-0.5d", "1F", "-Infinity")] == [
        *(0.5, 0.5, 5.0, 0.5, -0.5, 1.0, float("-inf")),
    ]
    assert str(java_double("NaN")) == "nan"
