"""Waits with a limit of time: what they return, and that whoever cancels them is heard."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path

import pytest

from tidegauge.waits import until_set

ROOT = Path(__file__).parents[3]


async def test_it_says_whether_the_event_is_set() -> None:
    event = asyncio.Event()
    assert not await until_set(event, 0)
    event.set()
    assert await until_set(event, 0)
    assert await until_set(event, None)


@pytest.mark.parametrize("turns", range(4))
async def test_a_wait_that_is_cancelled_after_the_event_swallows_nothing(turns: int) -> None:
    """It has ended before, or ends with the cancellation; a loop of such waits ends."""
    event = asyncio.Event()

    async def wait() -> None:
        while True:
            await until_set(event, 3_600)
            event.clear()

    waiting = asyncio.get_running_loop().create_task(wait())
    await asyncio.sleep(0)
    event.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    waiting.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert waiting.cancelled()


def test_the_product_does_not_call_wait_for() -> None:
    """The module says why; a condition's own ``wait_for`` is another method."""
    for name in ("broker", "client", "controller", "lab", "proto", "spark_jobs"):
        for path in (ROOT / name).rglob("*.py"):
            calls = [
                node.lineno
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                if isinstance(node, ast.Attribute)
                and node.attr == "wait_for"
                and isinstance(node.value, ast.Name)
                and node.value.id == "asyncio"
            ]
            assert not calls, f"{path}: {calls}"
