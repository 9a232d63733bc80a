"""A violation that the simulator finds is played on real processes, and every state it expects is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegauge_lab.scenario import load, play
from tidegauge_proof.simulator import schedule_scenario
from tidegauge_proof.simulator.lab_story import as_scenario, find_story
from tidegauge_proof.simulator.shrink import shrink
from tidegauge_proof.simulator.simulation import history_of

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


def test_a_short_schedule_comes_true(tmp_path: Path):
    """The file of ``--schedule``: of seed 7 only the controller's moment can't be forced, and its loss is there.

    The session of leader 3 has ended, m0 was committed and acknowledged, and ISR member 2 has truncated it.
    """
    rule = "high-watermark"
    short = shrink(history_of(7, 500, rule), rule)
    text = schedule_scenario.as_scenario(short, rule)
    assert short.violation is not None
    assert short.violation.message.startswith("broker 2 is in the ISR and has nothing at offset 0")
    begin, heal, end = text.partition("  - heal: [3]\n")
    assert heal
    seen = "  - expect: {answers: {m0: ack}, leader: 4, isr: [4, 1, 2], log: {2: [], 4: [m0@0]}}\n"
    file = tmp_path / "short.yaml"
    file.write_text(begin + seen + heal + end, encoding="utf-8")
    outcome = play(load(str(file)), tmp_path / "run")
    assert outcome.passed, outcome.failure
