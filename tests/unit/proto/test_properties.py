"""Properties files are read as java.util.Properties reads them, and written ones are read again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors import TidegaugeError
from tidegauge.settings import property_line, read_properties


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=1 \\\n   2\nb=3", {"a": "1 2", "b": "3"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\\\\\n2", {"a": "1\\2"}),
        ("# c \\\nb=3", {"b": "3"}),
        ("a=1\\\n# no comment", {"a": "1# no comment"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\ \nb=2", {"a": "1", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a=x\\ny\\tz\\\\\\q\\u0041\\:", {"a": "x\ny\tz\\qA:"}),
        ("a:1\r\nb 2\rc = = 3\n\td", {"a": "1", "b": "2", "c": "= 3", "d": ""}),
        ("a\\ b\\=c=1", {"a b=c": "1"}),
        ("a=\u2028\x0b1", {"a": "\u2028\x0b1".strip()}),
        ("a=1\na=2", {"a": "2"}),
    ],
)
def test_a_file_is_read_as_java_reads_it(text: str, pairs: dict[str, str]) -> None:
    assert read_properties(text) == pairs


def test_a_wrong_escape_is_refused_in_javas_words() -> None:
    with pytest.raises(TidegaugeError, match=r"Malformed .uxxxx encoding"):
        read_properties("a=\\u12")


@given(st.dictionaries(st.from_regex(r"[a-z.]{1,8}", fullmatch=True), st.text(max_size=30)))
def test_what_is_written_is_read_again(pairs: dict[str, str]) -> None:
    text = "".join(property_line(name, value) for name, value in pairs.items())
    assert read_properties(text) == {name: value.strip() for name, value in pairs.items()}
