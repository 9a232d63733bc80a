"""The persister's interface for a broker's group coordinator and leaders of share partitions; it knows no wire."""

from __future__ import annotations

from typing import Protocol

from tidegauge.share_groups import (
    DeleteShareState,
    InitializeShareState,
    ReadShareState,
    ReadShareSummary,
    ShareStateResult,
    WriteShareState,
)


class StatePersister(Protocol):
    """Keeps the states of share partitions; a method always returns, a failure is a result with an error."""

    async def initialize_state(self, request: InitializeShareState) -> ShareStateResult:
        """Begin the state of a share partition, or begin it again."""
        ...

    async def read_state(self, request: ReadShareState) -> ShareStateResult:
        """Return a share partition's state; the leader epoch fences earlier leaders."""
        ...

    async def write_state(self, request: WriteShareState) -> ShareStateResult:
        """Write states of records; the result says whether they are committed."""
        ...

    async def delete_state(self, request: DeleteShareState) -> ShareStateResult:
        """Forget the state of a share partition."""
        ...

    async def read_summary(self, request: ReadShareSummary) -> ShareStateResult:
        """Return the state of a share partition without its batches."""
        ...
