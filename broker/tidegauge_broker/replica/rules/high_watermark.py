"""Truncation to the high watermark, as before KIP-101 (Kafka 0.10.2).

A replica that starts to follow another broker cuts its log to its own high watermark and asks nobody. Its high
watermark is one round late, so it cuts committed records, and whoever is elected before it has fetched them again
loses them for good (KIP-101, scenario 1). No request carries an epoch: logs that differ are not noticed (scenario 2).
Source: ReplicaManager.makeFollowers and ReplicaFetcherThread.handleOffsetOutOfRange at 0.10.2.1.
"""

from __future__ import annotations

from tidegauge_broker.replica.epoch_cache import EpochCache
from tidegauge_broker.replica.messages import UNDEFINED_EPOCH_END, EpochEnd


class HighWatermarkRule:
    """The rule `high-watermark` of `replica.truncation.rule`."""

    name = "high-watermark"
    skips_newer_epochs = False

    def follows_anew(self, known_leader: int, leader: int) -> bool:
        """Only when the leader is another broker; a new epoch of the same one changes nothing."""
        return known_leader != leader

    def first_cut(self, epochs: EpochCache, high_watermark: int) -> int | None:
        """The own high watermark."""
        del epochs  # nobody looks at them
        return high_watermark

    def question(self, epochs: EpochCache) -> int | None:
        """Nothing is asked."""
        del epochs
        return None

    def cut(
        self, leader_end: EpochEnd, epochs: EpochCache, log_end_offset: int, high_watermark: int
    ) -> tuple[int, bool]:
        """Nobody answers what nobody asks; the high watermark would be the place."""
        del leader_end, epochs
        return min(high_watermark, log_end_offset), True

    def fetch_epochs(self, leader_epoch: int, epochs: EpochCache) -> tuple[int | None, int | None]:
        """None: any broker that leads answers, whatever its epoch."""
        del leader_epoch, epochs
        return None, None

    def cuts_beyond_leader(self, *, unclean_leader_election: bool) -> bool:
        """Only where elections may be unclean. Otherwise Kafka's process exits; here the replica is marked failed."""
        return unclean_leader_election

    def end_of_epoch(self, epochs: EpochCache, epoch: int, log_end_offset: int) -> EpochEnd:
        """No answer: the question did not exist."""
        del epochs, epoch, log_end_offset
        return UNDEFINED_EPOCH_END

    def may_join(self, log_end_offset: int, high_watermark: int, epoch_start_offset: int) -> bool:
        """At the high watermark, be it stale or not (KAFKA-7128)."""
        del epoch_start_offset
        return log_end_offset >= high_watermark

    def note_election(self, epochs: EpochCache, epoch: int, log_end_offset: int) -> bool:
        """Not noted."""
        del epochs, epoch, log_end_offset
        return False

    def note_batch(self, epochs: EpochCache, epoch: int, base_offset: int) -> bool:
        """Noted, so that the file tells what the log holds, though nobody uses it."""
        return epochs.assign(epoch, base_offset)
