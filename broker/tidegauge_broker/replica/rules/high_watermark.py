"""Truncation to the high watermark, as before KIP-101 (Kafka 0.10.2).

A replica that starts to follow another broker truncates its log to its own high watermark, without a request. Its high
watermark is one round late, so it truncates committed records; if it is elected before it has fetched them again,
they are lost for good (KIP-101, scenario 1). No request carries an epoch: divergence goes unnoticed (scenario 2).
Source: ReplicaManager.makeFollowers and ReplicaFetcherThread.handleOffsetOutOfRange at 0.10.2.1.
"""

from __future__ import annotations

from tidegauge_broker.replica.epoch_cache import EpochCache
from tidegauge_broker.replica.messages import UNDEFINED_EPOCH_END, EpochEnd


class HighWatermarkRule:
    """The rule `high-watermark` of `replica.truncation.rule`."""

    name = "high-watermark"
    skips_newer_epochs = False

    def restarts_following(self, known_leader: int, leader: int) -> bool:
        """Return True only for another leader; a new epoch changes nothing."""
        return known_leader != leader

    def initial_truncation_offset(self, epochs: EpochCache, high_watermark: int) -> int | None:
        """Return the replica's own high watermark."""
        del epochs  # not used by this rule
        return high_watermark

    def epoch_to_look_up(self, epochs: EpochCache) -> int | None:
        """Return None: this rule looks no epoch up."""
        del epochs
        return None

    def truncation_offset(
        self, leader_end: EpochEnd, epochs: EpochCache, log_end_offset: int, high_watermark: int
    ) -> tuple[int, bool]:
        """Return the high watermark; never called, since this rule looks no epoch up."""
        del leader_end, epochs
        return min(high_watermark, log_end_offset), True

    def fetch_epochs(self, leader_epoch: int, epochs: EpochCache) -> tuple[int | None, int | None]:
        """Return no epochs: any broker that leads responds, with any epoch."""
        del leader_epoch, epochs
        return None, None

    def truncates_beyond_leader(self, *, unclean_leader_election: bool) -> bool:
        """Whether elections may be unclean. Otherwise Kafka's process exits; here the replica fails."""
        return unclean_leader_election

    def end_of_epoch(self, epochs: EpochCache, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return an undefined end: the request did not exist yet."""
        del epochs, epoch, log_end_offset
        return UNDEFINED_EPOCH_END

    def may_join(self, log_end_offset: int, high_watermark: int, epoch_start_offset: int) -> bool:
        """Whether it has reached the high watermark, be it stale or not (KAFKA-7128)."""
        del epoch_start_offset
        return log_end_offset >= high_watermark

    def note_election(self, epochs: EpochCache, epoch: int, log_end_offset: int) -> bool:
        """Return False: this rule does not note elections."""
        del epochs, epoch, log_end_offset
        return False

    def note_batch(self, epochs: EpochCache, epoch: int, base_offset: int) -> bool:
        """Note the epoch, so that the file shows what the log holds, though no decision uses it."""
        return epochs.assign(epoch, base_offset)
