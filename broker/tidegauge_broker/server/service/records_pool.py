"""One thread beside the event loop for lengthy work on records: checks, conversions, decompression.

Rules:
    1. It does one piece of work at a time, in order of arrival. So all requests together inflate one batch at a time:
       at most ``MAX_INFLATED_BYTES``, with any number of clients.
    2. Heartbeats, replication and other connections continue meanwhile. Codecs and checksums let other threads run;
       between records the work pauses (``large_batches``), and threads take turns each ``SWITCH_SECONDS``: with
       Python's own 5 ms each read and write of a socket would wait as long for its turn.
Kafka's request handlers are threads; the loop of this broker is one.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tidegauge_broker.formats.large_batches import Pause

SWITCH_SECONDS = 0.0005
Result = TypeVar("Result")


class RecordsPool:
    """A thread for lengthy work on records. Its thread starts with the first work."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[Pause], Result]) -> Result:
        """Do some work in the thread, and return its result.

        Work whose caller is cancelled is not begun; running work ends normally.

        Args:
            work: called with a function that it must call between records.

        Raises:
            Exception: what the work raises.
        """
        if self._executor is None:
            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="records")
            sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, _pause)

    def close(self) -> None:
        """Begin no further work."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)


def _pause() -> None:
    """Let a thread that waits have its turn."""
    time.sleep(0)
