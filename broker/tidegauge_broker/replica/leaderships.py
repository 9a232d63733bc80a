"""The partitions that this broker leads, as far as its coordinators and its share partitions have been notified.

A group or transaction coordinator serves a partition of ``__consumer_offsets`` or ``__transaction_state`` while
its broker leads that partition. It is notified of a leadership when the broker takes it over, and when it loses it; the
next epoch of the same leadership is no news (Partition.makeLeader returns ``isNewLeader``, and
RequestHandlerHelper.onLeadershipChange acts on that alone).

Two differences from Kafka. A leader that hears of a later epoch than the next has missed one, in which another broker
may have led and written markers with that coordinator epoch; the old coordinator's are refused by it from then on
(TRANSACTION_COORDINATOR_FENCED), and its transactions never complete. So the old leadership is reported as lost, and
the new one as gained. And Kafka keeps the coordinators of a log directory that fails; here the loss is reported as
every other one is.
"""

from __future__ import annotations

from collections.abc import Collection

from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.effects import Effect, LeadershipChanged
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.roles import Role


class Leaderships:
    """The leaderships that were reported as gained and not yet as lost, each with the latest epoch that was led.

    Args:
        topics: those whose leaderships are reported.
    """

    __slots__ = ("_led", "_topics", "_watched")

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = topics
        self._led: dict[TopicPartition, int] = {}
        self._watched: set[TopicPartition] = set()

    def watch(self, partition: Partition, out: list[Effect]) -> None:
        """Report the leadership of a partition of any topic too, from now on: it is gained now if it is held.

        Share partitions are kept by the leader of their partition, and no longer than it leads (PartitionListener).
        """
        at = partition.topic_partition
        self._watched.add(at)
        if at not in self._led:
            self.check(partition, is_hosted=True, out=out)

    def unwatch(self, at: TopicPartition) -> None:
        """Report the leadership of a partition no longer, unless a coordinator keeps its state in its topic."""
        if at.topic not in self._topics:
            self._watched.discard(at)
            self._led.pop(at, None)

    def check(self, partition: Partition, *, is_hosted: bool, out: list[Effect]) -> None:
        """Emit LeadershipChanged if the leadership has moved, or may have moved and come back, since the last check.

        Args:
            partition: a replica whose role may have changed; its state has moved already.
            is_hosted: whether the broker still hosts it.
            out: takes the effect.
        """
        at = partition.topic_partition
        if at.topic not in self._topics and at not in self._watched:
            return
        leads = is_hosted and partition.role is Role.LEADER
        epoch = partition.leader_epoch
        before = self._led.pop(at, None)
        assert before is None or epoch >= before, "I5"
        if before is not None and not (leads and epoch <= before + 1):
            out.append(LeadershipChanged(at, leads=False, leader_epoch=epoch))
            before = None
        if leads:
            self._led[at] = epoch
            if before is None:
                out.append(LeadershipChanged(at, leads=True, leader_epoch=epoch))
