"""Two commits with the same code: a pass over docstrings is proven to change nothing else (tools/same_code.py)."""

from __future__ import annotations

import pytest
from tools.same_code import is_same, shape

BEFORE = '''\
"""A module."""

LIMIT = 3
"""So many."""


def end(offset: int) -> int:
    """The end."""
    return offset + 1
'''


def test_docstrings_comments_and_layout_are_no_code() -> None:
    after = BEFORE.replace('"""A module."""', '"""Ends of logs. Pure."""').replace("So many.", "Maximum number.")
    after = after.replace('"""The end."""', '"""Return the\n    exclusive end."""\n    # why')
    assert shape(after) == shape(BEFORE)


@pytest.mark.parametrize(("old", "new"), [("offset + 1", "offset + 2"), ("LIMIT", "MOST"), ("-> int", "-> float")])
def test_anything_else_is(old: str, new: str) -> None:
    assert shape(BEFORE.replace(old, new)) != shape(BEFORE)


def test_a_message_is_code() -> None:
    assert shape('def stop() -> None:\n    raise ValueError("told")') != shape(
        'def stop() -> None:\n    raise ValueError("notified")'
    )


def test_a_file_that_is_not_in_both_or_can_not_be_read_differs() -> None:
    assert is_same(BEFORE, BEFORE)
    assert not is_same(None, BEFORE)
    assert not is_same(BEFORE, None)
    assert not is_same(BEFORE, "def end(:")
