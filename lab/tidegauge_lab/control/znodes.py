"""Whether topics are deleted in ZooKeeper: the end of a deletion, which no broker's metadata shows."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.znodes import delete_topic_path, topic_path
from tidegauge_lab.local.waiting import TimeLimitError, holds_within

_CONNECT_SECONDS = 10.0


def wait_for_deletion(zookeeper: str, topics: Sequence[str], limit_seconds: float) -> None:
    """Wait until the znodes of topics and of their deletion are removed; blocks.

    Raises:
        TidegaugeError: BROKER_NOT_AVAILABLE, ZooKeeper does not respond.
        TimeLimitError: some are still there.
    """
    if not topics:
        return
    from kazoo.client import KazooClient  # noqa: PLC0415 - only this pays for it
    from kazoo.exceptions import KazooException  # noqa: PLC0415 - the same
    from kazoo.handlers.threading import KazooTimeoutError  # noqa: PLC0415 - the same

    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    client: Any = KazooClient(hosts=zookeeper, read_only=True)
    left = list(topics)

    def are_deleted() -> bool:
        left[:] = [
            topic for topic in left if client.exists(topic_path(topic)) or client.exists(delete_topic_path(topic))
        ]
        return not left

    try:
        client.start(timeout=_CONNECT_SECONDS)
        if not holds_within(are_deleted, limit_seconds):
            raise TimeLimitError(f"the deletion of {', '.join(left)} has not ended after {limit_seconds:g} s")
    except (KazooException, KazooTimeoutError) as problem:
        raise TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, f"ZooKeeper at {zookeeper}: {problem}") from None
    finally:
        with contextlib.suppress(Exception):
            client.stop()
            client.close()
