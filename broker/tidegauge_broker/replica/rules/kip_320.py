"""Fencing and truncation on fetch (KIP-320; Kafka 2.1, completed in 2.7; so in 3.9). The default.

Every fetch carries the follower's current leader epoch and the epoch of its last record. A leader of another epoch
rejects it; one whose log differs responds with the diverging epoch and its end, and the follower truncates. So no
look-up precedes the first fetch, and no record is truncated on a guess. A leader notes its epoch at election, so that
it knows the epoch's end without a record (KAFKA-7415); a follower joins the ISR only with all that the log held then
(KAFKA-7128).
Source: Partition.readRecords, AbstractFetcherThread, LeaderEpochFileCache of 3.9.
"""

from __future__ import annotations

from tidegauge.in_sync import obstacle_to_joining
from tidegauge_broker.replica.epoch_cache import EpochCache
from tidegauge_broker.replica.messages import EpochEnd
from tidegauge_broker.replica.rules.kip_279 import Kip279Rule


class Kip320Rule(Kip279Rule):
    """The rule `kip-320` of `replica.truncation.rule`."""

    name = "kip-320"
    skips_newer_epochs = True

    def restarts_following(self, known_leader: int, leader: int) -> bool:
        """Return True: at every higher epoch, also of the same leader."""
        del known_leader, leader
        return True

    def epoch_to_look_up(self, epochs: EpochCache) -> int | None:
        """Return None: the first fetch detects divergence."""
        del epochs
        return None

    def fetch_epochs(self, leader_epoch: int, epochs: EpochCache) -> tuple[int | None, int | None]:
        """Return both the current leader epoch and the epoch of the last record."""
        return leader_epoch, epochs.latest_epoch

    def truncates_beyond_leader(self, *, unclean_leader_election: bool) -> bool:
        """Return True: the follower truncates under every election policy."""
        del unclean_leader_election
        return True

    def end_of_epoch(self, epochs: EpochCache, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return the end of the epoch.

        An epoch older than the first is echoed, with the start of the first (since 2.1).
        """
        return epochs.end_offset_for(epoch, log_end_offset)

    def may_join(self, log_end_offset: int, high_watermark: int, epoch_start_offset: int) -> bool:
        """Whether nothing is missing: the high watermark may be stale just after an election (KAFKA-7128)."""
        return obstacle_to_joining(log_end_offset, high_watermark, epoch_start_offset) is None

    def note_election(self, epochs: EpochCache, epoch: int, log_end_offset: int) -> bool:
        """Note the epoch at the election, also without data (KAFKA-7415)."""
        return epochs.assign(epoch, log_end_offset)

    def note_batch(self, epochs: EpochCache, epoch: int, base_offset: int) -> bool:
        """Note the epoch; entries that contradict it are removed."""
        return epochs.assign(epoch, base_offset)
