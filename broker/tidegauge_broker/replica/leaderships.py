"""Which partitions of coordinators' topics this broker leads, as far as its coordinators have been notified.

A group or transaction coordinator serves a partition of ``__consumer_offsets`` or ``__transaction_state`` while
its broker leads that partition. It is notified of a leadership when the broker takes it over, and when it loses it; a
later epoch of the same leadership is no news (Partition.makeLeader returns ``isNewLeader``, and
RequestHandlerHelper.onLeadershipChange acts on that alone). Kafka keeps the coordinators of a log directory that fails;
here the loss is reported as every other one is.
"""

from __future__ import annotations

from collections.abc import Collection

from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.effects import Effect, LeadershipChanged
from tidegauge_broker.replica.partition import Partition, Role


class Leaderships:
    """The leaderships that were reported as gained and not yet as lost.

    Args:
        topics: those whose leaderships are reported.
    """

    __slots__ = ("_led", "_topics")

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = topics
        self._led: set[TopicPartition] = set()

    def check(self, partition: Partition, *, is_hosted: bool, out: list[Effect]) -> None:
        """Emit LeadershipChanged if the leadership has moved since the last check.

        Args:
            partition: a replica whose role may have changed; its state has moved already.
            is_hosted: whether the broker still hosts it.
            out: takes the effect.
        """
        at = partition.topic_partition
        if at.topic not in self._topics:
            return
        leads = is_hosted and partition.role is Role.LEADER
        if leads == (at in self._led):
            return
        if leads:
            self._led.add(at)
        else:
            self._led.discard(at)
        out.append(LeadershipChanged(at, leads, partition.leader_epoch))
