"""Stories that can be played on real processes: convictions, acquittals, and their files.

Divergence by a private epoch (KAFKA-6361, story S4): the stories that convict KIP-101 of it acquit KIP-279, by the same
seeds and checks.
"""

from __future__ import annotations

import pytest

from tidegauge_lab.scenario.loader import parse
from tidegauge_proof.simulator.lab_story import ASSIGNMENTS, acts_of, as_scenario, find_story, tell

FAST_FAIL_OVERS = range(1, 100, 4)


def broken_by(seed: int, rule: str) -> str:
    broken = tell(ASSIGNMENTS[seed % 2], acts_of(seed), rule).broken
    return "" if broken is None else broken.invariant


def test_a_private_epoch_convicts_kip_101_and_acquits_kip_279():
    convicted = [seed for seed in FAST_FAIL_OVERS if broken_by(seed, "kip-101") == "LogMatchingHw"]
    assert len(convicted) >= 5
    assert [broken_by(seed, "kip-279") for seed in convicted] == [""] * len(convicted)
    assert [broken_by(seed, "kip-320") for seed in convicted] == [""] * len(convicted)


def test_kip_279_has_a_private_epoch_of_its_own():
    """A follower that knows no epoch as small as its response's keeps all records below the leader's end."""
    assert broken_by(105, "kip-279") == "LogMatchingHw"
    assert broken_by(105, "kip-320") == ""


@pytest.mark.parametrize("rule", ["high-watermark", "kip-101", "kip-279"])
def test_a_story_is_found_the_same_again_and_not_under_kip_320(rule: str):
    found = find_story(0, rule)
    assert found is not None
    seed, story = found
    again = tell(story.replicas, story.done, rule)
    assert (again.done, again.states, again.logs) == (story.done, story.states, story.logs)
    assert tell(story.replicas, story.done, "kip-320").broken is None
    scenario = parse(as_scenario(story, seed, rule), "found.yaml")
    assert scenario.settings["replica.truncation.rule"] == rule
    assert len(scenario.steps) == 2 * len(story.done) + 2


def test_a_leader_that_the_controller_cannot_reach_is_not_expected_to_lead():
    """``expect`` of a leader holds if that broker says so itself; one that is partitioned leads in no new epoch."""
    found = find_story(0, "kip-101")
    assert found is not None
    (_, story), names = found, [name for name, _ in found[1].done]
    partitioned = range(names.index("cut"), names.index("heal"))
    without = [at for at, state in enumerate(story.states) if "leader" not in state]
    assert without
    assert set(without) <= set(partitioned)


def test_kip_320_has_no_such_story():
    assert find_story(0, "kip-320", 100) is None
