"""A scenario's steps as sentences, for those who watch a story and do not know the language of its file. Pure.

Each step's class has its sentence. ``expect`` and ``mark`` have none: they change nothing, and their authors' notes say
what they show.
"""

from __future__ import annotations

from tidegauge_lab.local.roles import METADATA
from tidegauge_lab.scenario.step_base import PartitionStep, Step

LEGEND = (
    "A state is written BROKER: LEO/HW, with * at the leader and - for a broker that does not respond:",
    "`1: 2/1*  2: -` says that broker 1 leads with log end offset 2 and high watermark 1.",
    "If an open transaction keeps the last stable offset below the high watermark, it comes third: `1: 3/3/1*`.",
    "A log is written VALUE@EPOCH, in the order of its offsets.",
)


def narrated(step: Step) -> str:
    """Return a step as a sentence without full stop, with its partition unless the first."""
    words = step.sentence()
    partition = step.partition if isinstance(step, PartitionStep) else None
    if not words or partition is None:
        return words
    return f"{words} ({'metadata log' if partition == METADATA else partition})"
