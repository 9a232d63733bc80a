"""The steps of a scenario about consumer groups as sentences. Pure."""

from __future__ import annotations

from functools import singledispatch

from tidegauge.counted import counted
from tidegauge_lab.scenario import group_steps as steps


@singledispatch
def group_sentence(step: steps.GroupStep) -> str:
    """Return a step as a sentence without a full stop; empty for an expectation."""
    raise AssertionError(f"{step.verb} is in the vocabulary, so it has a sentence")


@group_sentence.register
def _(_: steps.ExpectGroup) -> str:
    return ""


@group_sentence.register
def _(step: steps.StartConsumer) -> str:
    instance = (step.settings or {}).get("group.instance.id")
    static = f" as the static member {instance}" if instance else ""
    return f"Start the consumer {step.consumer} ({step.library}) in group {step.group}{static}"


@group_sentence.register
def _(step: steps.Consume) -> str:
    busy = ", and processes for a long time" if step.busy else ""
    return f"Consumer {step.consumer} polls and gets {', '.join(step.values)}{busy}"


@group_sentence.register
def _(step: steps.Busy) -> str:
    return f"Consumer {step.consumer} processes for a long time and does not poll"


@group_sentence.register
def _(step: steps.Poll) -> str:
    return f"Consumer {step.consumer} polls again"


@group_sentence.register
def _(step: steps.Commit) -> str:
    later = "; its response is awaited later" if step.answer == "later" else _failing(step.error)
    return f"Consumer {step.consumer} commits what it has got{later}"


@group_sentence.register
def _(step: steps.WaitCommit) -> str:
    return f"Wait until the commit of consumer {step.consumer} ends{_failing(step.error) or ' without an error'}"


def _failing(error: str) -> str:
    return f", which fails with {error}" if error else ""


@group_sentence.register
def _(step: steps.CloseConsumer) -> str:
    return f"Close the consumer {step.consumer}"


@group_sentence.register
def _(step: steps.KillConsumer) -> str:
    return f"Kill the consumer {step.consumer} (SIGKILL)"


@group_sentence.register
def _(step: steps.WaitGroup) -> str:
    parts = []
    if step.state is not None:
        parts.append(f"is {step.state}")
    if step.members is not None:
        parts.append(f"has {counted(step.members, 'member')}")
    if step.generation is not None:
        parts.append(f"is in generation {step.generation} or later")
    if step.lag is not None:
        parts.append(f"lags by at most {step.lag}")
    for consumer, partitions in (step.assignment or {}).items():
        parts.append(f"lets {consumer} read {', '.join(map(str, partitions)) or 'nothing'}")
    if step.committed:
        parts.append("has committed " + ", ".join(f"{offset} of {at}" for at, offset in step.committed.items()))
    return f"Wait until group {step.group} {' and '.join(parts)}"
