"""The conditions of ``/v1/wait``: the conditions of ``tidegauge wait``, read from JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegauge.partition import TopicPartition
from tidegauge_client.cli.wait import (
    Condition,
    elr_condition,
    fenced_condition,
    hw_condition,
    in_sync_condition,
    isr_condition,
    leader_condition,
)
from tidegauge_client.event_conditions import TRUNCATION, EventCondition
from tidegauge_lab.control.control_request import partition_in
from tidegauge_lab.control.endpoints import CONDITIONS
from tidegauge_lab.group_conditions import GroupCondition
from tidegauge_lab.transaction_conditions import TransactionCondition


def kind_in(body: Mapping[str, Any]) -> str:
    """Return which condition a body has."""
    return next(name for name in CONDITIONS if name in body)


def cluster_conditions(kind: str, wanted: Any) -> tuple[list[Condition], list[TopicPartition]]:
    """Return conditions that must all hold, and the partitions that they name.

    Raises:
        RefusedError: 400, a name is no partition.
    """
    if kind == "in_sync":
        return [in_sync_condition(topic) for topic in wanted] or [in_sync_condition(None)], []
    if kind in {"fenced", "unfenced"}:
        return [fenced_condition(broker, is_fenced=kind == "fenced") for broker in wanted], []
    named = {partition_in(name): value for name, value in wanted.items()}
    return [_of_partition(kind, at, value) for at, value in named.items()], list(named)


def _of_partition(kind: str, at: TopicPartition, value: Any) -> Condition:
    if kind == "isr":
        return isr_condition(at, value)
    if kind == "elr":
        return elr_condition(at, value)
    if kind == "high_watermark":
        return hw_condition(at, value)
    return leader_condition(at, other_than=value["not"]) if isinstance(value, dict) else leader_condition(at, value)


def event_condition(kind: str, wanted: Mapping[str, Any]) -> EventCondition:
    """Return the condition on an event, or on a truncation.

    Raises:
        RefusedError: 400, a name is no partition.
    """
    at = partition_in(wanted["partition"]) if "partition" in wanted else None
    if kind == "truncated":
        return EventCondition(TRUNCATION, at, wanted.get("broker"), truncates=True)
    return EventCondition(wanted["kind"], at, wanted.get("broker"), wanted.get("since_ms"))


def transaction_condition(wanted: Mapping[str, Any]) -> TransactionCondition:
    """Return the condition on a transactional id."""
    return TransactionCondition(wanted.get("state"), wanted.get("epoch"))


def group_condition(wanted: Mapping[str, Any]) -> GroupCondition:
    """Return the condition on a group."""
    return GroupCondition(
        wanted.get("state"),
        wanted.get("members"),
        wanted.get("generation"),
        wanted.get("lag"),
        epochs=wanted.get("epochs"),
    )
