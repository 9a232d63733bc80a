"""The reconciliation of a member towards its target: it gives up partitions first, and takes free ones.

Source: org.apache.kafka.coordinator.group.modern.consumer.CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from tidegauge_broker.coordinator.consumer_group.assignors.subscription import Partitions
from tidegauge_broker.coordinator.consumer_group.member import (
    ConsumerMember,
    Epochs,
    MemberState,
    TopicPartitionId,
    flattened,
    with_epochs,
)


class FencedMemberEpochError(Exception):
    """The member must drop its partitions and join again."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Computes the partitions that a member may own after one heartbeat.

    Attributes:
        epoch: of the target assignment.
        target: the member's.
        topic_ids: topics that the member is subscribed to.
        has_subscription_changed: whether this heartbeat has changed them.
        owned: what the member says that it owns; None: it has not said, which counts as everything.
        owners: epoch of the owner of each partition that is assigned or pending revocation.
    """

    epoch: int
    target: Partitions
    topic_ids: AbstractSet[bytes]
    has_subscription_changed: bool
    owned: AbstractSet[TopicPartitionId] | None
    owners: Mapping[TopicPartitionId, int]

    def apply_to(self, member: ConsumerMember) -> ConsumerMember:
        """Return the member after the heartbeat.

        Raises:
            FencedMemberEpochError: its state is of a later release, and it still owns partitions.
        """
        if not self.has_subscription_changed and member.is_reconciled_to(self.epoch):
            return member
        if member.state is MemberState.STABLE:
            return self._next(member, member.epoch) if member.epoch != self.epoch else self._shrunk(member)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            if self._owns_some_of(flattened(member.pending_revocation)):
                return self._shrunk(member) if self.has_subscription_changed else member
            return self._next(member, member.epoch)
        if member.state is MemberState.UNRELEASED_PARTITIONS:
            return self._next(member, member.epoch)
        if self.owned is None or self.owned:
            raise FencedMemberEpochError
        return self._next(member, self.epoch)

    def _owns_some_of(self, partitions: Mapping[TopicPartitionId, int]) -> bool:
        """Whether the member still owns one of these; a member that has not reported owns all."""
        return self.owned is None or any(one in self.owned for one in partitions)

    def _next(self, member: ConsumerMember, epoch: int) -> ConsumerMember:
        """Return the member one step closer to its target.

        Args:
            member: before.
            epoch: that it keeps while it has partitions to give up.
        """
        assigned, pending = flattened(member.assigned), flattened(member.pending_revocation)
        target = [
            (topic_id, partition)
            for topic_id, partitions in self.target
            if topic_id in self.topic_ids
            for partition in partitions
        ]
        wanted = set(target)
        keep = {one: at for one, at in assigned.items() if one in wanted}
        revoke = {one: at for one, at in assigned.items() if one not in wanted}
        waits_for = [one for one in target if one not in assigned]
        free = [one for one in waits_for if one not in self.owners or one in pending]
        if revoke and self._owns_some_of(revoke):
            return replace(
                member,
                epoch=epoch,
                previous_epoch=member.epoch,
                state=MemberState.UNREVOKED_PARTITIONS,
                assigned=with_epochs(keep.items()),
                pending_revocation=with_epochs(revoke.items()),
            )
        is_complete = len(free) == len(waits_for)
        return replace(
            member,
            epoch=self.epoch,
            previous_epoch=member.epoch,
            state=MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS,
            assigned=with_epochs((keep | dict.fromkeys(free, self.epoch)).items()),
            pending_revocation={},
        )

    def _shrunk(self, member: ConsumerMember) -> ConsumerMember:
        """Return the member without topics that it unsubscribed from."""
        assigned = flattened(member.assigned)
        dropped = {one: at for one, at in assigned.items() if one[0] not in self.topic_ids}
        if not dropped:
            return member
        keep = _without(assigned, dropped)
        pending = flattened(member.pending_revocation) | dropped
        if self._owns_some_of(pending):
            return replace(
                member,
                previous_epoch=member.epoch,
                state=MemberState.UNREVOKED_PARTITIONS,
                assigned=keep,
                pending_revocation=with_epochs(pending.items()),
            )
        return replace(member, previous_epoch=member.epoch, assigned=keep)


def _without(assigned: Mapping[TopicPartitionId, int], dropped: Mapping[TopicPartitionId, int]) -> Epochs:
    return with_epochs((one, at) for one, at in assigned.items() if one not in dropped)
