"""A search for a schedule that breaks an invariant under a truncation rule, piece by piece. Pure.

The histories have coarse steps that also become scenario files (``simulator.lab_story``): produce, one fetch of
a held follower, kill, start, a preferred election, a leader that nothing reaches. A violation is shortened there and
turned into a schedule of a cluster that is driven by hand, which must break as well before it is reported.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from tidegauge.control import NO_LEADER
from tidegauge_proof.hand.actions import Action, ActionError
from tidegauge_proof.hand.driven import HandDriven
from tidegauge_proof.hand.schedule import Schedule
from tidegauge_proof.hand.settings import RULE_NAMES, Settings
from tidegauge_proof.own_rules import OwnRules
from tidegauge_proof.simulator.lab_story import ASSIGNMENTS, Story, acts_of, shortened, tell

MOST_AT_ONCE = 50


class _Do(Protocol):
    """Does an action."""

    def __call__(self, kind: str, *values: int) -> None:
        """Do it."""


class Flaw(NamedTuple):
    """A schedule that breaks an invariant: its seed, itself, and what does not hold."""

    seed: int
    schedule: Schedule
    broken: str


def search(seed: int, count: int, rule: int, own: OwnRules | None = None) -> Flaw | None:
    """Try some seeds; return the first flaw, shortened, or None.

    Args:
        seed: the first one.
        count: how many are tried, at most ``MOST_AT_ONCE``.
        rule: place of the rule in ``RULE_NAMES``.
        own: rules of the caller, in place of Kafka's; a fault of theirs ends the search.
    """
    name = RULE_NAMES[rule]
    for number in range(seed, seed + min(count, MOST_AT_ONCE)):
        story = tell(ASSIGNMENTS[number % 2], acts_of(number), name, own)
        if own is not None and own.fault:
            return None
        if story.broken is None:
            continue
        flaw = by_hand(shortened(story, name, own), number, rule, own) or by_hand(story, number, rule, own)
        if flaw is not None:
            return flaw
    return None


def by_hand(story: Story, seed: int, rule: int, own: OwnRules | None = None) -> Flaw | None:
    """Tell a story as a schedule; None if that does not break."""
    settings = Settings(replicas=len(story.replicas), rule=rule, apart=1, own=own)
    cluster = HandDriven(settings)
    done: list[Action] = []

    def do(kind: str, *values: int) -> None:
        action = Action(kind, values)
        cluster.do(action)
        done.append(action)

    try:
        for broker in story.replicas:
            do("hold_fetch", broker)
        for name, broker in story.done:
            _act(cluster, do, name, broker)
            if cluster.broken:
                return Flaw(seed, Schedule(settings, tuple(done)), cluster.broken)
    except ActionError:
        return None
    return None


def _act(cluster: HandDriven, do: _Do, name: str, broker: int) -> None:
    match name:
        case "produce":
            do("produce", 1, 2, cluster.world.state_now.leader)
        case "write":
            do("produce", 1, 1, broker)
        case "cut":
            for other in cluster.world.brokers:
                if other != broker:
                    do("cut_link", other, broker)
        case "heal":
            do("heal_links")
        case "step":
            do("step_fetch", broker)
        case "kill":
            if any(broker in link for link in cluster.world.cut_links):
                do("heal_links")
            do("kill", broker)
            do("end_session", broker)
        case "start":
            do("hold_fetch", broker)
            do("start", broker)
        case _:
            do("elect")


def standstill(own: OwnRules) -> Flaw | None:
    """Return a flaw if a cluster by these rules commits nothing or has no leader.

    No invariant is broken by a cluster that does nothing.
    """
    settings = Settings(own=own)
    cluster = HandDriven(settings)
    first = cluster.world.state_now.leader
    committing = (Action("produce", (1, 2, first)), Action("wait", (5000,)))
    for action in committing:
        cluster.do(action)
    if any(one.outcome != "ok" for one in cluster.produced):
        said = "m1 is on every replica in sync, and is never committed: the high watermark does not rise"
        return Flaw(-1, Schedule(settings, committing), said)
    electing = (Action("kill", (first,)), Action("end_session", (first,)))
    for action in electing:
        cluster.do(action)
    if cluster.world.state_now.leader == NO_LEADER:
        said = "two replicas live and are in sync, and none of them leads"
        return Flaw(-1, Schedule(settings, (*committing, *electing)), said)
    return None
