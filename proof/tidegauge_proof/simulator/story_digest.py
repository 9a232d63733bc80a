"""The digest of a simulated history, to the last event: two Pythons that run the same code agree on it."""

from __future__ import annotations

import hashlib
import json

from tidegauge_proof.simulator.acts import words_of
from tidegauge_proof.simulator.simulation import DEFAULT_POWER, history_of, replay_schedule


def digest_of(seed: int, rule: str, steps: int = 1000, power: str = DEFAULT_POWER) -> str:
    """Return the digest of a seed's history, and its broken invariant.

    The digest covers the schedule that was drawn, each step in words, and each event of brokers and controllers with
    its time: the history is run by its seed, then its schedule is replayed, as the search does with a violation.

    Args:
        seed: of the history.
        rule: a truncation rule.
        steps: the most that are done.
        power: what a power loss may take.
    """
    found = history_of(seed, steps, rule, power)
    replayed = replay_schedule(seed, found.schedule, rule, power, tells=True)
    story = [words_of(done) for done in replayed.story]
    content = json.dumps([found.schedule, story, replayed.events, str(replayed.violation)], separators=(",", ":"))
    broken = "held" if found.violation is None else found.violation.invariant
    return f"{hashlib.sha256(content.encode()).hexdigest()} {found.steps} steps {len(replayed.events)} events {broken}"
