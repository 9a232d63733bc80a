"""A lab: a cluster that it begins with, a text, and a check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tidegauge_lab.labs.evidence import Evidence

SETTINGS: Mapping[str, str] = {"auto.leader.rebalance.enable": "false"}
"""Of every lab's brokers: no election that the learner did not ask for."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check looked at.

    Attributes:
        holds: whether it is as the lab wants it.
        text: the actual state, in one sentence, whether it holds or not.
        next: what to do if it does not hold; empty otherwise.
    """

    holds: bool
    text: str
    next: str = ""


def yes(text: str) -> Finding:
    """Return a finding that holds."""
    return Finding(holds=True, text=text)


def no(text: str, next: str = "") -> Finding:  # noqa: A002 - named as the field
    """Return a finding that does not hold: the actual state, and what to do."""
    return Finding(holds=False, text=text, next=next)


Check = Callable[[Evidence], Iterator[Finding]]
"""Says what it found, one thing after another; it ends at what does not hold and all else depends on."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that is there when the lab begins: broker ids of each partition, preferred leader first."""

    name: str
    assignment: tuple[tuple[int, ...], ...]
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lab:
    """A lab.

    Attributes:
        number: its place among all, from 1 on.
        name: as it is called on the command line.
        check: what the cluster must have come to.
        topics: there when it begins.
        settings: of all brokers, beside ``SETTINGS``.
        brokers: how many; their ids begin at 0.
        controller: the broker that is the controller at the beginning.
        zookeeper_only: why it is of ZooKeeper mode alone; empty: a cluster in KRaft mode will do, too.
        kraft_only: why its cluster is in KRaft mode, whichever is asked for; empty: it need not be.
        advertised_port: broker N sends Kafka clients to 127.0.0.1 and this port plus N; 0: to its own listener.
    """

    number: int
    name: str
    check: Check
    topics: tuple[Topic, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    brokers: int = 3
    controller: int = 0
    advertised_port: int = 0
    zookeeper_only: str = ""
    kraft_only: str = ""

    @property
    def all_settings(self) -> dict[str, str]:
        """Settings of all brokers."""
        return {**SETTINGS, **self.settings}

    @property
    def page(self) -> str:
        """The name of its page in docs/labs."""
        return f"{self.number:02d}-{self.name}.md"


def judged(lab: Lab, evidence: Evidence) -> list[Finding]:
    """Return all that the lab's check says of a cluster.

    Raises:
        ValueError: the check said nothing; one that was not made must not pass.
    """
    found = list(lab.check(evidence))
    if not found:
        raise ValueError(f"the check of lab {lab.name} said nothing")
    return found


def passes(findings: list[Finding]) -> bool:
    """Return whether everything holds."""
    return bool(findings) and all(one.holds for one in findings)
