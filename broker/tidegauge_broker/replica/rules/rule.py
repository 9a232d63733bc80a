"""The decisions of a truncation rule. One rule holds for a whole cluster; leader, follower and partition ask it.

The rules are the steps of Kafka's history: the high watermark (0.10.2), KIP-101 (0.11 to 1.1), KIP-279 (2.0) and
KIP-320 (2.1, completed by truncation on fetch; 3.9). Each class takes over its predecessor's decisions and overrides
what its step changed, so that each module shows just that. Everything else is the same under all rules.

The older rules lose records or let logs diverge; that is what they are here for. So the core asserts nothing of which
a rule may deprive it: that epochs rise along a log, or that replicas agree below the high watermark. The epoch
*cache* stays strictly rising (invariant I3) under every rule.
"""

from __future__ import annotations

from typing import Protocol

from tidegauge_broker.replica.epoch_cache import EpochCache
from tidegauge_broker.replica.messages import EpochEnd


class TruncationRule(Protocol):
    """Decides for one replica at a time. Methods that take the epoch cache change it only if they say so."""

    @property
    def name(self) -> str:
        """Its value in ``replica.truncation.rule``."""
        ...

    @property
    def skips_newer_epochs(self) -> bool:
        """Whether a follower leaves out fetched batches of an epoch above its own."""
        ...

    # As a follower

    def restarts_following(self, known_leader: int, leader: int) -> bool:
        """Whether a state of a higher epoch makes a follower of ``known_leader`` restart under ``leader``."""
        ...

    def initial_truncation_offset(self, epochs: EpochCache, high_watermark: int) -> int | None:
        """Return the truncation offset of a replica that starts to follow, or None."""
        ...

    def epoch_to_look_up(self, epochs: EpochCache) -> int | None:
        """Return the epoch to look up before the first fetch; None: fetch."""
        ...

    def truncation_offset(
        self, leader_end: EpochEnd, epochs: EpochCache, log_end_offset: int, high_watermark: int
    ) -> tuple[int, bool]:
        """Return the new log end offset, and whether the logs now agree.

        It follows from the leader's end of an epoch.
        """
        ...

    def fetch_epochs(self, leader_epoch: int, epochs: EpochCache) -> tuple[int | None, int | None]:
        """Return a fetch's current leader epoch and last fetched epoch; None: unchecked."""
        ...

    def truncates_beyond_leader(self, *, unclean_leader_election: bool) -> bool:
        """Whether a follower that is beyond its leader's end truncates to that end; if not, it fails."""
        ...

    # As a leader

    def end_of_epoch(self, epochs: EpochCache, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return the leader's response to a look-up of an epoch's end."""
        ...

    def may_join(self, log_end_offset: int, high_watermark: int, epoch_start_offset: int) -> bool:
        """Whether a follower with this log end may be proposed for the ISR."""
        ...

    # As either

    def note_election(self, epochs: EpochCache, epoch: int, log_end_offset: int) -> bool:
        """Note the epoch of an election that this replica won, in the cache; returns whether the cache changed."""
        ...

    def note_batch(self, epochs: EpochCache, epoch: int, base_offset: int) -> bool:
        """Note an appended batch's epoch in the cache; returns whether the cache changed."""
        ...
