"""The demo's lines read the same on a narrow terminal, beside its bars, and in a pipe."""

from __future__ import annotations

import io
import re

import pytest

from tidegauge_client.metadata import PartitionInfo
from tidegauge_lab.demo.screen import progress, tell
from tidegauge_lab.demo.story import partition_line

LINE = "flights-0 [1 of 3] " + "is without a leader for 3,884 ms, "[:-2] + " " * 3 + "and then broker 2 leads :tada:"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("variable", ["NO_COLOR", "FORCE_COLOR"])
def test_a_line_beside_the_bars_is_neither_broken_nor_coloured(
    monkeypatch: pytest.MonkeyPatch, columns: int, variable: str
) -> None:
    """rich breaks lines at its own idea of the width and colours numbers; the terminal breaks lines itself."""
    terminal = Terminal()
    for name, value in {"COLUMNS": str(columns), "TERM": "xterm-256color", variable: "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout", terminal)
    with progress(1000) as bars:
        tell(LINE)
        bars.show(sent=10, acknowledged=5, committed=1)
    assert f"{LINE}\n" in terminal.getvalue()
    assert re.search(r"sent .*10/1000", terminal.getvalue()), "the bars are there too"


def test_without_bars_a_line_goes_to_stdout_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(1000):
        tell(LINE)
    assert capsys.readouterr().out == f"{LINE}\n"


def test_a_partition_takes_one_line_of_a_narrow_terminal() -> None:
    line = partition_line(PartitionInfo("flights", 0, 2, 1, (0, 1, 2), (2, 1)))
    assert line == "flights-0  leader 2  epoch 1  replicas 0,1,2  ISR 2,1"
    assert len(f"  {line}") <= 60
