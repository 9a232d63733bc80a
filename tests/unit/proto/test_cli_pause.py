"""Verbs that follow something end when their reader does (``tidegauge logs -f | head -3``)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from tidegauge.cli import is_pipe, pause


@contextlib.contextmanager
def stdout_in_a_pipe(monkeypatch: pytest.MonkeyPatch, *, is_read: bool) -> Iterator[None]:
    """Put a pipe in the place of stdout, with a reader or with one that has closed it."""
    reading, writing = os.pipe()
    with open(writing, "w", encoding="utf-8") as stdout, contextlib.ExitStack() as ends:  # noqa: PTH123 - a descriptor
        if is_read:
            ends.callback(os.close, reading)
        else:
            os.close(reading)
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", stdout)
            assert is_pipe(stdout)
            yield


def test_a_pause_goes_on_while_the_pipe_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with stdout_in_a_pipe(monkeypatch, is_read=True):
        pause(0)


def test_a_pause_ends_at_once_when_the_reader_has_closed_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written: the verb would notice only at its next line, which may never come."""
    with stdout_in_a_pipe(monkeypatch, is_read=False), pytest.raises(BrokenPipeError):
        pause(5)


def test_a_pause_needs_no_descriptor(capsys: pytest.CaptureFixture[str]) -> None:
    pause(0)
    assert capsys.readouterr().out == ""
