"""Texts chosen by clients, and in a foreign directory's logs, can't steer the terminal that shows it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tidegauge.cli import print_json, print_line, print_text, say
from tidegauge.terminal_text import shown_controls
from tidegauge_client.process_end import tail_of
from tidegauge_lab.cli.timeline import _show
from tidegauge_lab.timeline.choice import Choice

ROOT = Path(__file__).parents[3]
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


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (lambda: print_text("a\nb\rc\x08\x1b[2J"), "a\nb\\x0dc\\x08\\x1b[2J\n"),
        (lambda: print_line("group\nBroker 0 up\x9b2J"), "group\\x0aBroker 0 up\\x9b2J\n"),
        (lambda: say("no group \x1b]0;title\x07"), "no group \\x1b]0;title\\x07\n"),
        (lambda: print_json({"group": "a\x1b\x7f\x9bü"}), '{"group":"a\\u001b\\u007f\\u009bü"}\n'),
    ],
)
def test_whatever_a_verb_prints_is_harmless(
    printed: Callable[[], None], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ids of groups, members, clients and transactions are any text (no rule of Kafka's forbids a character)."""
    printed()
    out, err = capsys.readouterr()
    assert out + err == shown
    if shown.startswith("{"):
        assert json.loads(shown) == {"group": "a\x1b\x7f\x9bü"}


def test_an_event_is_one_harmless_line(capsys: pytest.CaptureFixture[str]) -> None:
    event = {"v": 1, "broker": 0, "kind": "group", "time_ms": 0, "group": "g\x1b[2J", "cause": "a\r\n00:00:00 forged"}
    _show([event], Choice(), "text")
    (line,) = capsys.readouterr().out.splitlines()
    assert r"g\x1b[2J" in line
    assert r"a\x0d\x0a00:00:00 forged" in line


OWN_SEQUENCES = {"describe.py": 1, "lab.py": 2, "main.py": 1, "dump_verb.py": 1}
"""Files in which a verb prints by itself, and how often: the live view, pages of labs, JSON, and records in a pipe."""


def test_no_verb_prints_text_by_itself() -> None:
    found = {}
    places = ("client/tidegauge_client/cli", "lab/tidegauge_lab/cli", "broker/tidegauge_broker/log")
    for path in (path for place in places for path in sorted((ROOT / place).glob("*.py"))):
        count = len(re.findall(r"\bclick\.s?echo\b|(?<!\w)print\(", path.read_text(encoding="utf-8")))
        if count:
            found[path.name] = count
    assert found == OWN_SEQUENCES
