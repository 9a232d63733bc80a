"""The sentences of ``explain``: one value for all that is explained, and its two forms, text and JSON. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from tidegauge.lazy_dataclasses import dataclass

About = Literal[
    "leader",
    "refusal",
    "process",
    "high-watermark",
    "isr",
    "follower",
    "producers",
    "consumers",
    "transactions",
    "health",
    "lab",
    "reassignment",
    "coordinator",
    "offsets-topic",
    "group",
    "member",
    "lag",
    "state-topic",
    "transaction",
    "partition",
    "zombie",
    "state",
    "window",
    "records",
]
TITLES: Mapping[About, str] = {
    "leader": "Leader",
    "refusal": "Refused requests",
    "process": "Processes",
    "reassignment": "Reassignment",
    "high-watermark": "High watermark",
    "isr": "Out of sync",
    "follower": "Followers",
    "producers": "Producers",
    "consumers": "Consumers",
    "transactions": "Transactions",
    "health": "Controller",
    "lab": "Lab",
    "coordinator": "Coordinator",
    "offsets-topic": "Offsets topic",
    "group": "Group",
    "member": "Members",
    "lag": "Lag",
    "state-topic": "State topic",
    "transaction": "Transaction",
    "partition": "Partitions",
    "zombie": "Former leaders",
    "state": "State",
    "window": "Window",
    "records": "Records",
}


@dataclass(frozen=True, slots=True)
class Sentence:
    """One statement about a partition, a group, a transactional id or a share partition.

    Attributes:
        about: the part that it explains.
        text: the state, and its cause.
        rule: Kafka's rule.
        change: the event or command that would change the state; empty if nothing needs to.
        subject: the broker, member or partition concerned.
        wait_ms: upper bound in ms after which the state changes by itself; None: it does not, or that is not known.
    """

    about: About
    text: str
    rule: str
    change: str = ""
    subject: int | str | None = None
    wait_ms: int | None = None


def as_lines(
    headline: str,
    sentences: Sequence[Sentence],
    wrap: Callable[[str, str], list[str]],
    speak: Callable[[str], str] = str,
) -> Iterator[str]:
    """Return an explanation as text, each title once before the sentences that it covers.

    Args:
        headline: the first line.
        sentences: what follows.
        wrap: breaks a text into lines with an indent.
        speak: translates a text.
    """
    yield speak(headline)
    title = ""
    for sentence in sentences:
        if TITLES[sentence.about] != title:
            title = TITLES[sentence.about]
            yield ""
            yield speak(title)
        yield from wrap(speak(sentence.text), "  ")
        yield from wrap(speak(f"Rule: {sentence.rule}."), "    ")
        if sentence.change:
            yield from wrap(speak(f"Changes with: {sentence.change}."), "    ")


def as_json(view: Mapping[str, Any], sentences: Sequence[Sentence], subject: str) -> dict[str, Any]:
    """Return an explanation for ``-o json``.

    Args:
        view: the facts.
        sentences: about them.
        subject: the key of the sentences' subjects: broker, member or partition.
    """
    found = [
        {
            "about": one.about,
            "text": one.text,
            "rule": one.rule,
            "change": one.change,
            subject: one.subject,
            "wait_ms": one.wait_ms,
        }
        for one in sentences
    ]
    return {**view, "sentences": found}
