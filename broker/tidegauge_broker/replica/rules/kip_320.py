"""Fencing and truncation on fetch (KIP-320; Kafka 2.1, completed in 2.7; so in 3.9). The default.

Every fetch says in which epoch the follower believes to be, and which epoch wrote its last record. A leader of another
epoch refuses it; one whose log differs answers with the place where they part, and the follower cuts. So nothing is
asked before the first fetch, and nothing is cut on a guess. A leader notes its epoch at election, so that it can
answer for it without a record (KAFKA-7415); a follower joins the ISR only with all that stood there then (KAFKA-7128).
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

    def follows_anew(self, known_leader: int, leader: int) -> bool:
        """At every higher epoch, whoever leads."""
        del known_leader, leader
        return True

    def question(self, epochs: EpochCache) -> int | None:
        """Nothing: the first fetch tells."""
        del epochs
        return None

    def fetch_epochs(self, leader_epoch: int, epochs: EpochCache) -> tuple[int | None, int | None]:
        """Both."""
        return leader_epoch, epochs.latest_epoch

    def cuts_beyond_leader(self, *, unclean_leader_election: bool) -> bool:
        """Always."""
        del unclean_leader_election
        return True

    def end_of_epoch(self, epochs: EpochCache, epoch: int, log_end_offset: int) -> EpochEnd:
        """One older than the first is echoed, with the start of the first (since 2.1)."""
        return epochs.end_offset_for(epoch, log_end_offset)

    def may_join(self, log_end_offset: int, high_watermark: int, epoch_start_offset: int) -> bool:
        """Return whether nothing is missing: the high watermark may be stale just after an election (KAFKA-7128)."""
        return obstacle_to_joining(log_end_offset, high_watermark, epoch_start_offset) is None

    def note_election(self, epochs: EpochCache, epoch: int, log_end_offset: int) -> bool:
        """Noted, also without data."""
        return epochs.assign(epoch, log_end_offset)

    def note_batch(self, epochs: EpochCache, epoch: int, base_offset: int) -> bool:
        """Noted; entries that contradict it go."""
        return epochs.assign(epoch, base_offset)
