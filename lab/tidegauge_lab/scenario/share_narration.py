"""The steps of a scenario about share groups as sentences. Pure."""

from __future__ import annotations

from functools import singledispatch

from tidegauge.errors import ErrorCode
from tidegauge_lab.scenario import share_steps as steps
from tidegauge_lab.scenario.readers import NO_LEADER

_SAYS = {"accept": "accepts", "release": "releases", "reject": "rejects", "renew": "renews its lock on"}


@singledispatch
def share_sentence(step: steps.OF_SHARE_GROUPS) -> str:
    """Return a step as a sentence without a full stop; empty for an expectation."""
    raise AssertionError(f"{step.verb} is in the vocabulary, so it has a sentence")


@share_sentence.register
def _(_: steps.ExpectShare) -> str:
    return ""


@share_sentence.register
def _(step: steps.VerifyShares) -> str:
    found = ", ".join(f"{count} {name}" for name, count in step.found.items())
    return f"Judge all that members were given and have said: {found or 'no guarantee is broken'}"


@share_sentence.register
def _(step: steps.SetGroupConfig) -> str:
    settings = " and ".join(f"{name} to {value}" for name, value in step.config.items())
    return f"For group {step.group}, set {settings}"


@share_sentence.register
def _(step: steps.BeginShareGroup) -> str:
    return f"Share group {step.group} shall begin at offset {step.offset}{_failing(step.error)}"


@share_sentence.register
def _(step: steps.StartMember) -> str:
    return f"Member {step.member} joins share group {step.group}"


@share_sentence.register
def _(step: steps.ShareFetch) -> str:
    if step.error is not ErrorCode.NONE:
        return f"Member {step.member} fetches{_failing(step.error)}"
    if not step.values:
        return f"Member {step.member} fetches and gets nothing"
    times = "" if step.delivery is None else f", which is delivery {step.delivery}"
    return f"Member {step.member} fetches and gets {', '.join(step.values)}{times}"


@share_sentence.register
def _(step: steps.Acknowledge) -> str:
    outcome = "; the response is awaited later" if step.answer == "later" else _failing(step.error)
    return f"Member {step.member} {_SAYS[step.type]} {', '.join(step.values)}{outcome}"


@share_sentence.register
def _(step: steps.WaitAcknowledge) -> str:
    return f"Wait until the acknowledgement of member {step.member} ends{_failing(step.error) or ' without an error'}"


@share_sentence.register
def _(step: steps.LeaveShareGroup) -> str:
    return f"Member {step.member} ends its session and leaves"


@share_sentence.register
def _(step: steps.KillMember) -> str:
    return f"Member {step.member} dies: its connection closes"


@share_sentence.register
def _(step: steps.WaitShare) -> str:
    parts = [f"begins at {step.start}"] if step.start is not None else []
    parts += [f"ends at {step.end}"] if step.end is not None else []
    if step.records is not None:
        parts.append(f"has {', '.join(map(str, step.records))} in flight" if step.records else "has nothing in flight")
    if step.durable_start is not None:
        parts.append(
            "no start on disk" if step.durable_start == NO_LEADER else f"the start {step.durable_start} on disk"
        )
    if step.durable is not None:
        parts.append(f"{', '.join(map(str, step.durable)) or 'no records'} on disk")
    if step.durable_leader_epoch is not None:
        parts.append(f"was read in leader epoch {step.durable_leader_epoch}")
    return f"Wait until share group {step.group} {', '.join(parts)}"


def _failing(error: ErrorCode) -> str:
    return "" if error is ErrorCode.NONE else f", which fails with {error.name}"
