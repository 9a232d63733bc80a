"""The conditions of ``wait`` that the leader of a KRaft quorum can judge: the leader, and the committed end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidegauge.cli import EXIT_CONDITION, EXIT_TIME_LIMIT, fail, print_json
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.cli.common import JSON, run
from tidegauge_client.quorum_admin import QuorumAdmin, QuorumView

ANY_LEADER = -1
"""Stands for any leader where the id of one could be."""
_PAUSE_SECONDS = 0.1
_LOOK_SECONDS = 2.0


class QuorumCondition(NamedTuple):
    """A condition to wait for.

    Attributes:
        text: as the command line has it.
        lacks: returns the actual state by the leader's description, as a clause; empty if the condition holds.
    """

    text: str
    lacks: Callable[[QuorumView], str]


def has_leader(leader_id: int) -> QuorumCondition:
    """Return the condition that a controller leads and has committed in its epoch.

    Args:
        leader_id: the controller; ANY_LEADER: any.
    """
    wanted = "quorum-leader" if leader_id == ANY_LEADER else f"quorum-leader={leader_id}"

    def lacks(view: QuorumView) -> str:
        led = f"controller {view.leader_id} leads in epoch {view.epoch}"
        if view.high_watermark < 0:
            return f"{led} and has committed nothing of it yet"
        return "" if leader_id in {ANY_LEADER, view.leader_id} else led

    return QuorumCondition(wanted, lacks)


def has_committed(offset: int) -> QuorumCondition:
    """Return the condition that the metadata log is committed to an end offset."""

    def lacks(view: QuorumView) -> str:
        if view.high_watermark >= offset:
            return ""
        return f"the high watermark of the metadata log is {max(0, view.high_watermark)}"

    return QuorumCondition(f"metadata-offset={offset}", lacks)


def wait_for_quorum(asked: Sequence[str], condition: QuorumCondition, timeout_ms: int, output: str) -> None:
    """Wait until a condition holds; exit as ``wait`` does otherwise.

    Args:
        asked: the controllers to ask, as HOST:PORT.
        condition: the condition.
        timeout_ms: limit of the wait.
        output: the form of the report.
    """
    view, problem = run(last_look(asked, condition, timeout_ms / 1000))
    if view is None:
        assert problem is not None
        fail(problem.message, output, code=problem.code, exit_code=EXIT_TIME_LIMIT)
    lacking = condition.lacks(view)
    if lacking or problem is not None:
        since = "" if problem is None else f"; since then {problem.message}"
        sentence = f"{condition.text} does not hold after {timeout_ms} ms: {lacking}{since}"
        fail(sentence, output, code=ErrorCode.REQUEST_TIMED_OUT, exit_code=EXIT_CONDITION)
    if output == JSON:
        print_json({"condition": condition.text, "holds": True, "leader": view.leader_id, "epoch": view.epoch})


async def last_look(
    asked: Sequence[str], condition: QuorumCondition, limit_seconds: float
) -> tuple[QuorumView | None, TidegaugeError | None]:
    """Look until the condition holds or the limit is over.

    Returns:
        the newest description, None if there was none; and why the last look gave none, None if it gave one.
    """
    deadline = time.monotonic() + limit_seconds
    view: QuorumView | None = None
    async with QuorumAdmin(asked, _LOOK_SECONDS) as admin:
        while True:
            try:
                view, problem = await admin.describe(), None
            except TidegaugeError as error:
                problem = error
            holds = view is not None and problem is None and not condition.lacks(view)
            if holds or time.monotonic() >= deadline:
                return view, problem
            await asyncio.sleep(_PAUSE_SECONDS)
