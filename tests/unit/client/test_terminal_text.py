"""A log that came with a foreign directory can't steer the terminal that shows it."""

from __future__ import annotations

import pytest

from tidegauge.terminal_text import shown_controls
from tidegauge_client.process_end import tail_of

CLEARS_THE_SCREEN = "\x1b[2J"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, tab\tand ümlaut", "plain, tab\tand ümlaut"),
        (f"a{CLEARS_THE_SCREEN}b", r"a\x1b[2Jb"),
        ("\x9b2J", r"\x9b2J"),
        ("over\rwritten\x07\x7f", r"over\x0dwritten\x07\x7f"),
    ],
)
def test_control_characters_are_written_out(text: str, shown: str) -> None:
    assert shown_controls(text) == shown


def test_the_last_error_of_a_process_has_no_control_characters() -> None:
    line = f"[2026-11-29 12:00:00,000] ERROR disk {CLEARS_THE_SCREEN} full (tidegauge.log)"
    assert tail_of(line, 0).last_error == r"disk \x1b[2J full"
