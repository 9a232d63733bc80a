"""Scenario files: a vocabulary of failures, a player on real processes, and the stories that are shipped.

For tests of one's own::

    from tidegauge_lab.scenario import load, play

    def test_my_story(tmp_path):
        outcome = play(load("my-story.yaml"), tmp_path)
        assert outcome.passed, outcome.failure
"""

from __future__ import annotations

from tidegauge_lab.scenario.loader import ScenarioError, load, shipped_names
from tidegauge_lab.scenario.model import Scenario
from tidegauge_lab.scenario.outcome import Outcome
from tidegauge_lab.scenario.runner import play

__all__ = ["Outcome", "Scenario", "ScenarioError", "load", "play", "shipped_names"]
