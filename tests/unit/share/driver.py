"""A share partition of a log whose batches are given, and a share coordinator that a test speaks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidegauge.errors import ErrorCode
from tidegauge.share_groups import StateBatch
from tidegauge_broker.share.acknowledging import Acknowledgement
from tidegauge_broker.share.acquiring import AbortedTransaction, Acquired, LogBatch, Read, Wanted
from tidegauge_broker.share.effects import Effect, Respond, WriteState
from tidegauge_broker.share.partition import SharePartition
from tidegauge_broker.share.settings import AcquireMode, ShareSettings

LOCK_MS = 5000
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


def log_of(*sizes: int) -> list[LogBatch]:
    """Return batches of these sizes, from offset 0 on."""
    batches: list[LogBatch] = []
    for size in sizes:
        base = batches[-1].last_offset + 1 if batches else 0
        batches.append(LogBatch(base, base + size - 1))
    return batches


@dataclass
class Driver:
    """Reads the log where the share partition wants it, and writes its states at once unless ``holds`` is set.

    Attributes:
        writes: all writes, in order.
        held: those whose outcome is still to come.
        responses: error and message by token.
    """

    log: Sequence[LogBatch]
    settings: ShareSettings = field(default_factory=lambda: ShareSettings(record_lock_duration_ms=LOCK_MS))
    leader_epoch: int = 3
    now_ms: int = 1000
    holds: bool = False
    start_offset: int = 0
    state: Sequence[StateBatch] = ()
    aborted: Sequence[AbortedTransaction] = ()

    def __post_init__(self) -> None:
        self.share = SharePartition(self.leader_epoch, self.settings)
        self.effects: list[Effect] = []
        self.writes: list[WriteState] = []
        self.held: list[WriteState] = []
        self.responses: dict[object, tuple[ErrorCode, str | None]] = {}
        self._tokens = 0
        self.take(self.share.initialize())
        self.take(self.share.state_read(ErrorCode.NONE, None, 2, self.start_offset, self.state))

    def take(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            self.effects.append(effect)
            if isinstance(effect, WriteState):
                self.writes.append(effect)
                self.held.append(effect)
            elif isinstance(effect, Respond):
                assert effect.token not in self.responses, "one response for each request"
                self.responses[effect.token] = effect.error, effect.message
        if not self.holds:
            self.written()

    def written(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Report the outcome of all held writes."""
        held, self.held = self.held, []
        for write in held:
            self.take(self.share.state_written(write.write_id, error))

    def fetch(
        self,
        member: str = "a",
        max_records: int = 1000,
        batch_size: int = 1000,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
    ) -> list[tuple[int, int, int]]:
        """Read from the next fetch offset to the end of the log, and return what the member acquires."""
        if not self.share.can_acquire():
            return []
        offset = self.share.next_fetch_offset()
        batches = [batch for batch in self.log if batch.last_offset >= offset]
        wanted = Wanted(max_records, batch_size, mode)
        read = Read(offset, batches, self.aborted)
        acquired: list[Acquired] = self.share.acquire(member, read, wanted, self.now_ms)
        return [tuple(one) for one in acquired]

    def acknowledge(self, first: int, last: int, *types: int, member: str = "a") -> ErrorCode | None:
        """Acknowledge a range of offsets; return the response, None while its write is held."""
        return self.acknowledge_all([Acknowledgement(first, last, types)], member)

    def acknowledge_all(self, batches: Sequence[Acknowledgement], member: str = "a") -> ErrorCode | None:
        self._tokens += 1
        self.take(self.share.acknowledge(self._tokens, member, batches, self.now_ms))
        return self.responses.get(self._tokens, (None, None))[0]

    def release(self, member: str = "a") -> None:
        self._tokens += 1
        self.take(self.share.release(self._tokens, member, self.now_ms))

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        self.take(self.share.expire(self.now_ms))

    @property
    def last_write(self) -> tuple[int, int, list[tuple[int, ...]]]:
        """Start offset, number of completed records, and batches of the last write."""
        write = self.writes[-1]
        return write.start_offset, write.complete_count, [tuple(map(int, one)) for one in write.batches]

    def states(self) -> dict[int, tuple[int, int]]:
        """State and delivery count of each offset in flight."""
        return {
            offset: (int(delivery.state), delivery.delivery_count)
            for batch in self.share.window.in_flight
            for first, last, delivery in batch.runs()
            for offset in range(first, last + 1)
        }
