"""Conditions to wait for: leader, ISR, high watermark, in sync; and the exception with the actual state.

The conditions are ``tidegauge wait``'s: they hold when they hold in the metadata of every broker that responds,
and the brokers meant confirm it themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tidegauge.errors import TidegaugeError
from tidegauge_client.admin import Admin
from tidegauge_client.admin_groups import GroupDescription
from tidegauge_client.admin_transactions import TransactionDescription
from tidegauge_client.cli.wait import Condition, Looker
from tidegauge_client.event_conditions import EventCondition, wait_for_event
from tidegauge_lab.group_conditions import GroupCondition, look_at_group
from tidegauge_lab.transaction_conditions import TransactionCondition, look_at_transaction

POLL_SECONDS = 0.05
__tracebackhide__ = True  # pytest: a report shows the test's own lines, not those that waited


class NotSoError(AssertionError):
    """Raised when a condition does not come true in time; the message begins with the actual state."""

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


Found = TypeVar("Found", GroupDescription, TransactionDescription)
_LEAST_LOOK_MS = 1000.0
"""How long the last look may take: an expired wait reports the actual state, not that there was no time to look."""


async def wait_until_event(logs: Path, condition: EventCondition, limit_seconds: float) -> Mapping[str, Any]:
    """Look into the event logs until they hold the event; return it.

    Raises:
        NotSoError: they do not.
    """
    found, problem = await wait_for_event(logs, condition, limit_seconds)
    if found is None:
        raise NotSoError(f"{problem} (waited {limit_seconds:g} s for: {condition.text})")
    return found


async def wait_until_group(
    bootstrap: Sequence[str], group_id: str, condition: GroupCondition, limit_seconds: float
) -> GroupDescription:
    """Ask the group's coordinator until the condition holds; return the group as it is then.

    Raises:
        NotSoError: it does not.
    """

    async def look(admin: Admin, left_ms: float) -> GroupDescription | str:
        return await look_at_group(admin, group_id, condition, left_ms)

    return await _wait_until_found(bootstrap, look, condition.text, limit_seconds)


async def wait_until_transaction(
    bootstrap: Sequence[str], transactional_id: str, condition: TransactionCondition, limit_seconds: float
) -> TransactionDescription:
    """Ask the coordinator of a transactional id until the condition holds; return the id as it is then.

    Raises:
        NotSoError: it does not.
    """

    async def look(admin: Admin, left_ms: float) -> TransactionDescription | str:
        return await look_at_transaction(admin, transactional_id, condition, left_ms)

    return await _wait_until_found(bootstrap, look, condition.text, limit_seconds)


async def _wait_until_found(
    bootstrap: Sequence[str], look: Callable[[Admin, float], Awaitable[Found | str]], text: str, limit_seconds: float
) -> Found:
    """Look until something is found; a sentence describes the actual state."""
    deadline = time.monotonic() + limit_seconds
    async with Admin(bootstrap) as admin:
        while True:
            try:
                left_ms = max(_LEAST_LOOK_MS, (deadline - time.monotonic()) * 1000)
                found = await look(admin, left_ms)
                if not isinstance(found, str):
                    return found
                problem = found
            except TidegaugeError as error:
                problem = str(error)
            if time.monotonic() >= deadline:
                raise NotSoError(f"{problem} (waited {limit_seconds:g} s for: {text})")
            await asyncio.sleep(POLL_SECONDS)
