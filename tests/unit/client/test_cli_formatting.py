"""Formats, separators and lines of `produce` and `consume`: bytes in, bytes out."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge_client.cli.formatting import (
    compile_format,
    json_bytes,
    parse_header,
    parse_headers,
    record_json,
    unescape,
)
from tidegauge_client.cli.lines import Splitter, read_lines
from tidegauge_client.subscription import ConsumerRecord

RECORD = ConsumerRecord("t", 2, 7, 1_000, 0, b"key", b"v\xff", [("a", b"1"), ("b", None)], 3)
NULLS = ConsumerRecord("t", 2, 8, 1_000, 0, None, None, (), 3)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("%v\\n", b"v\xff\n"),
        ("%t/%p@%o", b"t/2@7"),
        ("%k=%v", b"key=v\xff"),
        ("%T %h", b"1000 a=1,b="),
        ("%K %S", b"3 2"),
        ("100%%", b"100%"),
        ("\\t\\r\\0\\\\\\x41\\xfF", b"\t\r\0\\A\xff"),
        ("a\tb", b"a\tb"),
        ("é", "é".encode()),
        ("", b""),
    ],
)
def test_fields_and_escapes_print_as_in_kcat(template: str, expected: bytes) -> None:
    assert compile_format(template)(RECORD) == expected


def test_headers_are_read_as_they_are_printed() -> None:
    printed = compile_format("%h")(RECORD)
    assert parse_headers(printed) == [("a", b"1"), ("b", b"")], "null and empty print alike, as in kcat"
    assert parse_headers(b"") == []
    assert parse_header(b"a=1,b=2") == ("a", b"1,b=2")


@pytest.mark.parametrize("text", [b"a", b"=1", b"a=1,", b"\xff=1"])
def test_what_is_no_header_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"is not a header|not UTF-8"):
        parse_headers(text)


def test_null_prints_as_nothing_and_has_length_minus_one() -> None:
    assert compile_format("[%k|%v]%K %S")(NULLS) == b"[|]-1 -1"


@pytest.mark.parametrize("template", ["%q", "%", "\\q", "\\", "\\x4", "\\xzz"])
def test_an_unknown_field_or_escape_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        compile_format(template)


@pytest.mark.parametrize(
    ("text", "expected"), [("\t", b"\t"), ("\\t", b"\t"), ("::", b"::"), ("%k", b"%k"), ("\\x00", b"\0")]
)
def test_a_separator_takes_escapes_and_a_real_tab(text: str, expected: bytes) -> None:
    assert unescape(text) == expected


@pytest.mark.parametrize("text", ["", "\\%", "\\"])
def test_an_empty_or_broken_separator_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must not be empty|not an escape"):
        unescape(text)


def test_json_keeps_bytes_that_are_not_text_as_base64() -> None:
    assert json_bytes(b"v\xff") == {"base64": "dv8="}
    assert json_bytes("é".encode()) == "é"
    assert json_bytes(None) is None
    assert record_json(RECORD)["headers"] == [["a", "1"], ["b", None]]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=6).filter(lambda line: b"\n" not in line)), st.integers(1, 7), st.booleans())
def test_lines_are_split_at_newlines_only(lines: list[bytes], chunk_bytes: int, ends_with_newline: bool) -> None:
    """A final newline makes no extra record, an empty line is an empty value, and carriage returns stay."""
    data = b"\n".join(lines) + (b"\n" if ends_with_newline and lines else b"")
    splitter = Splitter()
    found = [
        line for start in range(0, len(data), chunk_bytes) for line in splitter.feed(data[start : start + chunk_bytes])
    ]
    found += splitter.end()
    # Without a final newline, an empty last line cannot be distinguished from none.
    expected = lines if (ends_with_newline or not lines or lines[-1]) else lines[:-1]
    assert found == expected


async def test_a_file_is_read_to_its_end() -> None:
    found = [line async for some in read_lines(io.BytesIO(b"a\r\n\n\xff")) for line in some]

    assert found == [b"a\r", b"", b"\xff"]
