"""The repetition of requests to a share coordinator: times and number. Pure.

Source: ``PersisterStateManager``.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode

MAX_ATTEMPTS = 5
FIRST_BACKOFF_SECONDS = 1.0
"""It doubles with each attempt: the second one follows after 2 s."""
PASSING = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors after which another attempt may succeed."""
