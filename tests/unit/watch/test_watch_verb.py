"""`tidegauge watch` if it can't begin: with options that do not go together."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegauge_lab.cli.watch import watch


@pytest.mark.parametrize("option", [["--lab", "acks-all"], ["--scenario", "loss-cured"]])
def test_labs_and_stories_have_clusters_of_their_own(option: list[str], tmp_path: Path):
    """With -b nothing is started: the brokers are elsewhere."""
    done = CliRunner().invoke(watch, ["--dir", str(tmp_path), "-b", "127.0.0.1:1", *option])
    assert done.exit_code == 1
    assert "--lab and --scenario start clusters here: leave -b" in done.output


@pytest.mark.parametrize(
    ("option", "words"),
    [(["--lab", "acks-al"], "did you mean acks-all"), (["--scenario", "loss-cure"], "loss-cured")],
)
def test_a_name_that_is_none_says_which_may_be_meant(option: list[str], words: str, tmp_path: Path):
    done = CliRunner().invoke(watch, ["--dir", str(tmp_path), *option])
    assert done.exit_code == 1
    assert words in done.output
