"""The operations that wait in purgatory for the replicas of a broker, and when they are tried again.

Source: Partition.tryCompleteDelayedRequests, ReplicaManager.addCompletePurgatoryAction and DelayedActionQueue.
"""

from __future__ import annotations

from operator import attrgetter

from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.delayed_delete_records import DelayedDeleteRecords
from tidegauge_broker.replica.delayed_fetch import DelayedFetch
from tidegauge_broker.replica.delayed_produce import DelayedProduce
from tidegauge_broker.replica.effects import Effect
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.waiting.purgatory import Purgatory

_waits_for_high_watermark = attrgetter("waits_for_high_watermark")


class ParkedOperations:
    """The purgatories of one broker, keyed by partition.

    Attributes:
        appended: partitions with waiting fetches that have not been looked at since they grew, in order; see
            ``wake_fetches``.
    """

    __slots__ = ("appended", "deletions", "fetches", "produces")

    def __init__(self) -> None:
        self.produces: Purgatory[DelayedProduce] = Purgatory()
        self.fetches: Purgatory[DelayedFetch] = Purgatory()
        self.deletions: Purgatory[DelayedDeleteRecords] = Purgatory()
        self.appended: dict[TopicPartition, None] = {}

    def settle(
        self,
        partition: Partition,
        out: list[Effect],
        *,
        role_changed: bool = False,
        fetches_tried: set[int] | None = None,
        wake_later: bool = False,
    ) -> None:
        """Wake the operations that wait for this partition, once its own effects are in ``out``.

        A step that settles several partitions, and has changed all of them before, shares ``fetches_tried``. With
        ``wake_later`` the fetches that wait for more records are left to ``wake_fetches``.
        """
        key = partition.topic_partition
        if partition.moved_high_watermark or role_changed:
            self.produces.check(key, out)
        if wake_later and partition.moved_log_end and not role_changed:
            if self.fetches.is_watched(key):
                self.appended[key] = None
        elif partition.moved_log_end or role_changed:
            self.fetches.check(key, out, tried=fetches_tried)
        elif partition.moved_high_watermark:
            self.fetches.check(key, out, tried=fetches_tried, only=_waits_for_high_watermark)
        if partition.moved_low_watermark or role_changed:
            self.deletions.check(key, out)
        partition.moved_high_watermark = partition.moved_log_end = partition.moved_low_watermark = False

    def wake_fetches(self, out: list[Effect]) -> None:
        """Look at the fetches that produces have left waiting, at each once (DelayedActionQueue.tryCompleteActions)."""
        appended, self.appended = self.appended, {}
        tried: set[int] = set()
        for key in appended:
            self.fetches.check(key, out, tried=tried)

    def cancel(self, token: object) -> None:
        """Forget the parked operation of a caller whose connection is closed."""
        if not self.fetches.cancel(token) and not self.produces.cancel(token):
            self.deletions.cancel(token)

    def expire(self, now_ms: int, out: list[Effect]) -> None:
        """Expire the operations whose deadline has passed."""
        self.produces.expire(now_ms, out)
        self.fetches.expire(now_ms, out)
        self.deletions.expire(now_ms, out)

    def next_deadline_ms(self) -> int | None:
        """Return the next deadline in ms; None if nothing is parked."""
        first_ms: int | None = None
        for purgatory in (self.produces, self.fetches, self.deletions):
            if not purgatory.deadlines:
                continue
            deadline_ms = purgatory.next_deadline_ms()
            if deadline_ms is not None and (first_ms is None or deadline_ms < first_ms):
                first_ms = deadline_ms
        return first_ms

    def counts(self) -> dict[str, int]:
        """Return the number of operations that wait in each purgatory."""
        return {
            "Produce": len(self.produces),
            "Fetch": len(self.fetches),
            "DeleteRecords": len(self.deletions),
        }
