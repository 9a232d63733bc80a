"""Detection of log truncation behind the reader, by leader epochs; offsets alone can't show it.

Contract: no clock and no network of its own; ``EpochClient`` asks the cluster. A query keeps, for each partition, the
offset that it has read up to and the leader epoch of the record before it.

- The log that was read and the leader's are the same up to that offset exactly if the leader's largest epoch that is
  not above the read one *is* that one and ends at or behind that offset. Otherwise the leader's log diverges from what
  was read: after an unclean election, or in a topic that was deleted and created again. Offsets alone hide it as soon
  as the new log is longer than the old one.
- A high watermark below what was read is no loss while the leader still has those records: a new leader learns the high
  watermark only when its followers have fetched. Then the reader waits.
- If a leader doesn't know (no epochs, as in logs from before 0.11), the offsets decide.
- A finding under a leader epoch holds for as long as that epoch: one request per change of leader.

Source: KIP-320 (``OffsetsForLeaderEpochClient``), ``LeaderEpochFileCache.endOffsetFor``; Spark's own Kafka source has
no such check.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from tidegauge.partition import TopicPartition
from tidegauge_spark.offsets import Offsets

Epochs = Mapping[TopicPartition, int]
MAX_STEPS_BACK = 8
"""Maximum number of epochs without a record in a row; behind them the record's epoch counts as unknown."""


class EpochEnd(NamedTuple):
    """The largest epoch of a log that is not above the requested one, and the first offset behind it."""

    leader_epoch: int
    end_offset: int


class EpochClient(Protocol):
    """The requests to the cluster that are needed here."""

    def epoch_ends(self, asked: Epochs) -> dict[TopicPartition, EpochEnd | None]:
        """Return where epochs end in the leaders' logs; None if a leader can't say."""
        ...

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """Return the leader epoch that is known without a request; -1 unknown."""
        ...


class EpochTracker:
    """A query's knowledge of the epochs of its partitions. Nothing in it must outlive the process."""

    def __init__(self) -> None:
        self._held: dict[TopicPartition, tuple[int, int]] = {}
        """The leader epoch under which the log was found to hold what was read, and up to which offset."""
        self._starts: dict[TopicPartition, tuple[int, int]] = {}
        """A leader epoch and the first offset that was written under it."""

    def truncations(self, client: EpochClient, offsets: Offsets, epochs: Epochs) -> dict[TopicPartition, int]:
        """Return the partitions whose log no longer holds what was read, and the offset from which it differs.

        Args:
            client: asks the cluster.
            offsets: what was read (exclusive).
            epochs: leader epoch of the record before each offset, where it is known.
        """
        asked = {
            one: epochs[one]
            for one, offset in offsets.items()
            if offset > 0 and one in epochs and not self._is_held(client, one, offset)
        }
        truncations: dict[TopicPartition, int] = {}
        for one, end in client.epoch_ends(asked).items() if asked else ():
            if end is not None and (end.leader_epoch < epochs[one] or end.end_offset < offsets[one]):
                truncations[one] = min(end.end_offset, offsets[one])
            self._held[one] = (client.leader_epoch(one), offsets[one])
        return truncations

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions whose topic was deleted and created again."""
        for one in partitions:
            self._held.pop(one, None)
            self._starts.pop(one, None)

    def _is_held(self, client: EpochClient, one: TopicPartition, offset: int) -> bool:
        leader_epoch, up_to = self._held.get(one, (-1, -1))
        return leader_epoch == client.leader_epoch(one) and leader_epoch >= 0 and offset <= up_to

    def lagging(self, client: EpochClient, offsets: Offsets) -> set[TopicPartition]:
        """Return those partitions with a high watermark below ``offsets`` whose leader still has the records."""
        ends = client.epoch_ends({one: client.leader_epoch(one) for one in offsets}) if offsets else {}
        return {one for one, end in ends.items() if end is not None and end.end_offset >= offsets[one]}

    def epochs_before(self, client: EpochClient, offsets: Offsets) -> dict[TopicPartition, int]:
        """Return the leader epoch of the record before each offset in the leaders' logs; unknown ones are left out."""
        found: dict[TopicPartition, int] = {}
        asked: dict[TopicPartition, int] = {}
        for one, offset in offsets.items():
            leader_epoch = client.leader_epoch(one)
            if offset <= 0 or leader_epoch < 0:
                continue
            known_epoch, start = self._starts.get(one, (-1, 0))
            if leader_epoch == 0 or (known_epoch == leader_epoch and start < offset):
                found[one] = leader_epoch
            else:
                asked[one] = leader_epoch
        # The epoch before this one ends where this one begins; if that is not below the offset, one step back.
        for _ in range(MAX_STEPS_BACK):
            if not asked:
                break
            ends = client.epoch_ends({one: epoch - 1 for one, epoch in asked.items()})
            for one, end in ends.items():
                epoch = asked.pop(one)
                if end is None:
                    continue
                if epoch == client.leader_epoch(one):
                    self._starts[one] = (epoch, end.end_offset)
                if end.end_offset < offsets[one]:
                    found[one] = epoch
                elif end.leader_epoch == 0:
                    found[one] = 0
                elif end.leader_epoch > 0:
                    asked[one] = end.leader_epoch
        for one in found:
            # It was read from this leader's own log.
            self._held[one] = (client.leader_epoch(one), offsets[one])
        return found
