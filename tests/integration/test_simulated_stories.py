"""A violation that the simulator finds is played on real processes, and every state it expects is there (row B7)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegauge_lab.scenario import load, play
from tidegauge_lab.simulator.lab_story import as_scenario, find_story

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.mark.parametrize("rule", ["high-watermark", "kip-101", "kip-279"])
def test_a_found_story_comes_true(rule: str, tmp_path: Path):
    """Loss by a change of leader; divergence by a private epoch."""
    found = find_story(0, rule)
    assert found is not None
    file = tmp_path / "found.yaml"
    file.write_text(as_scenario(found[1], found[0], rule), encoding="utf-8")
    outcome = play(load(str(file)), tmp_path / "run")
    assert outcome.passed, outcome.failure
