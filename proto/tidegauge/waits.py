"""Waits with a limit of time that whoever cancels them ends.

``asyncio.wait_for`` before Python 3.12 returns, and swallows the cancellation, where it comes within two turns of the
event loop after what is waited for: the task then goes on, and whoever waits for its end waits for ever. A test finds
the calls of it.
"""

from __future__ import annotations

import asyncio


async def until_set(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait until an event is set, or (None: without a limit) this time has passed; return whether it is set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True
