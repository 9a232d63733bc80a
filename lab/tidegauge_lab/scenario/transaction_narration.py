"""The steps of a scenario about transactions as sentences. Pure."""

from __future__ import annotations

from functools import singledispatch

from tidegauge_lab.scenario import transaction_steps as steps


@singledispatch
def transaction_sentence(step: steps.OF_TRANSACTIONS) -> str:
    """Return a step as a sentence without a full stop; empty for an expectation."""
    raise AssertionError(f"{step.verb} is in the vocabulary, so it has a sentence")


@transaction_sentence.register
def _(_: steps.EXPECTATIONS) -> str:
    return ""


@transaction_sentence.register
def _(step: steps.StartProducer) -> str:
    return f"Start the producer {step.producer} ({step.library}) with the transactional id {step.transactional_id}"


@transaction_sentence.register
def _(step: steps.BeginTransaction) -> str:
    return f"Producer {step.producer} begins a transaction"


@transaction_sentence.register
def _(step: steps.Send) -> str:
    return f"Producer {step.producer} sends {', '.join(step.values)}{_outcome(step)}"


@transaction_sentence.register
def _(step: steps.CommitTransaction) -> str:
    return f"Producer {step.producer} commits{_outcome(step)}"


@transaction_sentence.register
def _(step: steps.AbortTransaction) -> str:
    return f"Producer {step.producer} aborts{_outcome(step)}"


@transaction_sentence.register
def _(step: steps.SendOffsets) -> str:
    offsets = ", ".join(f"{offset} of {at}" for at, offset in step.offsets.items())
    return f"Producer {step.producer} adds offsets of group {step.group} to its transaction: {offsets}{_outcome(step)}"


@transaction_sentence.register
def _(step: steps.AbortHanging) -> str:
    return f"Write an ABORT marker for the transaction that begins at offset {step.start}"


def _outcome(step: steps.Send | steps.SendOffsets | steps.EndStep) -> str:
    return "; the outcome is awaited later" if step.answer == "later" else _failing(step.error)


def _failing(error: str) -> str:
    return f", which fails with {error}" if error else ""


@transaction_sentence.register
def _(step: steps.WaitProducer) -> str:
    return f"Wait until the call of producer {step.producer} ends{_failing(step.error) or ' without an error'}"


@transaction_sentence.register
def _(step: steps.KillProducer) -> str:
    return f"Kill the producer {step.producer} (SIGKILL)"


@transaction_sentence.register
def _(step: steps.PauseClient) -> str:
    return f"Pause the client {step.client} (SIGSTOP)"


@transaction_sentence.register
def _(step: steps.ResumeClient) -> str:
    return f"Resume the client {step.client} (SIGCONT)"


@transaction_sentence.register
def _(step: steps.WaitTransaction) -> str:
    parts = []
    if step.state is not None:
        parts.append(f"is {step.state}")
    if step.epoch is not None:
        parts.append(f"is in epoch {step.epoch} or later")
    if step.partitions is not None:
        lacking = ", ".join(map(str, step.partitions))
        parts.append(f"lacks a marker in {lacking}" if lacking else "lacks no marker")
    return f"Wait until transactional id {step.transactional_id} {' and '.join(parts)}"
