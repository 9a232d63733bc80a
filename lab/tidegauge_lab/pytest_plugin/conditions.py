"""What may be waited for: leader, ISR, high watermark, in sync; and the exception that says what is true instead.

The conditions are those of ``tidegauge wait``: they hold when they hold in the metadata of every broker that responds,
and the brokers meant confirm it themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tidegauge.errors import TidegaugeError
from tidegauge.groups import GroupState
from tidegauge_client.admin import LATEST, Admin
from tidegauge_client.admin_groups import GroupDescription
from tidegauge_client.cli.wait import Condition, Looker
from tidegauge_client.group_tables import OffsetRow, offset_rows

POLL_SECONDS = 0.05
__tracebackhide__ = True  # pytest: a report shows the test's own lines, not those that waited


class NotSoError(AssertionError):
    """A condition did not come true in time; the message begins with what is true instead."""

    # pytest's summary line has room for one short name before the message, and shows no module of built-in exceptions.
    __module__ = "builtins"


async def wait_until(bootstrap: Sequence[str], condition: Condition, limit_seconds: float) -> None:
    """Look until the condition holds.

    Raises:
        NotSoError: it does not.
    """
    deadline = time.monotonic() + limit_seconds
    async with Admin(bootstrap) as admin:
        looker = Looker(admin, condition)
        while True:
            try:
                problem = await looker.look()
            except TidegaugeError as error:
                problem = str(error)
            if problem is None:
                return
            if time.monotonic() >= deadline:
                raise NotSoError(f"{problem} (waited {limit_seconds:g} s for: {condition.text})")
            await asyncio.sleep(POLL_SECONDS)


@dataclass(frozen=True, slots=True)
class GroupCondition:
    """What a consumer group shall be; None: anything.

    Attributes:
        state: Empty, PreparingRebalance, CompletingRebalance, Stable or Dead (unknown to its coordinator).
        members: how many.
        generation: this one or a later one.
        lag: at most so many records over all partitions that the group reads or has offsets of; a partition without a
            committed offset counts as not read.
    """

    state: str | None = None
    members: int | None = None
    generation: int | None = None
    lag: int | None = None

    def __post_init__(self) -> None:
        known = [one.value for one in GroupState]
        if self.state is not None and self.state not in known:
            raise ValueError(f"{self.state!r} is no state of a group; there are {', '.join(known)}")

    def problem(self, group: GroupDescription, rows: Sequence[OffsetRow] = ()) -> str | None:
        """Return what is true of the group instead; None if it is as it shall be."""
        name = f"group {group.group_id}"
        if self.state is not None and group.state != self.state:
            return f"{name} is {group.state}" + (f": {group.reason}" if group.reason else "")
        if self.members is not None and len(group.members) != self.members:
            return f"{name} has {len(group.members)} members"
        if self.generation is not None and group.generation < self.generation:
            return f"{name} is in generation {group.generation}"
        if self.lag is not None:
            of_partitions = [row for row in rows if row.topic_partition is not None]
            unknown = next((row.topic_partition for row in of_partitions if row.lag is None), None)
            if unknown is not None:
                return f"{name} has no known lag in {unknown}"
            lag = sum(row.lag or 0 for row in of_partitions)
            if lag > self.lag:
                return f"{name} lags by {lag} records"
        return None

    @property
    def text(self) -> str:
        """Return the condition in words."""
        parts = {"state": self.state, "members": self.members, "generation": self.generation, "lag": self.lag}
        return ", ".join(f"{name} {value}" for name, value in parts.items() if value is not None)


async def wait_until_group(
    bootstrap: Sequence[str], group_id: str, condition: GroupCondition, limit_seconds: float
) -> GroupDescription:
    """Ask the group's coordinator until the condition holds; return the group as it is then.

    Raises:
        NotSoError: it does not.
    """
    deadline = time.monotonic() + limit_seconds
    async with Admin(bootstrap) as admin:
        while True:
            try:
                left_ms = max(1.0, (deadline - time.monotonic()) * 1000)
                group = await admin.describe_group(group_id, timeout_ms=left_ms)
                rows = [] if condition.lag is None else await _offset_rows(admin, group)
                problem = condition.problem(group, rows)
                if problem is None:
                    return group
            except TidegaugeError as error:
                problem = str(error)
            if time.monotonic() >= deadline:
                raise NotSoError(f"{problem} (waited {limit_seconds:g} s for: {condition.text})")
            await asyncio.sleep(POLL_SECONDS)


async def _offset_rows(admin: Admin, group: GroupDescription) -> list[OffsetRow]:
    committed = await admin.committed_offsets(group.group_id)
    partitions = {*committed, *(at for member in group.members for at in member.assignment)}
    ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST)) if partitions else {}
    return offset_rows(group, committed, {at: one.offset for at, one in ends.items()})
