"""`tidegauge play`: what it refuses before it serves anything, and what it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidegauge_lab.cli.play import play
from tidegauge_lab.play import server, site
from tidegauge_lab.play.runtime import FILES


def run(*arguments: str) -> Result:
    return CliRunner().invoke(play, arguments)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A runtime of stand-ins, and a server that ends at once."""
    for name in FILES:
        (tmp_path / name).write_bytes(b"")
    files = site.site_files(tmp_path)
    monkeypatch.setattr(site, "site_files", lambda: files)
    monkeypatch.setattr("tidegauge_lab.cli.play.missing", lambda: "")
    monkeypatch.setattr(server.PlayServer, "serve_forever", lambda _: None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--story", "tuor"], "there is no story tuor in the browser; did you mean tour"),
        (["--schedule", "k0"], "a schedule is a version, settings and actions"),
        (["--schedule", "1~~<script>"], "a schedule is a version, settings and actions"),
        (["--schedule", "1~~k0", "--story", "tour"], "exclude one another"),
    ],
)
def test_what_can_not_be_opened_is_refused_by_a_sentence(arguments: list[str], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 1
    assert words in result.stderr


def test_without_its_python_it_says_what_is_missing_and_how_to_bring_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegauge_lab.cli.play.missing", lambda: "Python for the browser is not installed.")
    result = run()
    assert result.exit_code == 1
    assert "Python for the browser is not installed." in result.stderr


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize(
    ("arguments", "rest"),
    [([], ""), (["--story", "tour"], "?story=tour"), (["--schedule", "1~r0~p1-2-0.k0"], "#1~r0~p1-2-0.k0")],
)
def test_it_prints_the_address_of_what_it_opens(arguments: list[str], rest: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert re.fullmatch(rf"http://127\.0\.0\.1:\d+/{re.escape(rest)}  \(Ctrl-C ends it\)\n", result.stdout)
