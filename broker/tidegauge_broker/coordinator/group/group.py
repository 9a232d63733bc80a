"""One consumer group: its state, generation, members and offsets. Source: Kafka's GroupMetadata.

The rules of this module hold without any effect; ``phases`` and the modules of the requests build on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tidegauge.groups import GroupState, JoinedMember, Protocol
from tidegauge_broker.coordinator.group.member import Member
from tidegauge_broker.coordinator.group.states import (
    ALLOWED,
    CAN_REBALANCE,
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
)
from tidegauge_broker.coordinator.group.subscriptions import subscribed_topics
from tidegauge_broker.coordinator.offsets import Offsets
from tidegauge_broker.coordinator.timers import Timer

CONSUMER_PROTOCOL_TYPE = "consumer"
LARGEST_GENERATION = 2**31 - 1


class Group:
    """A group.

    Attributes:
        partition: of __consumer_offsets.
        state_since_ms: the time of the last transition; None if the loaded record has none.
        protocol_type: None until a member has joined; stays when the last one leaves.
        members: by member id, in the order in which they joined.
        static_members: member id by group instance id.
        pending_members: the timers of member ids that were given with MEMBER_ID_REQUIRED (KIP-394).
        awaiting_sync: members that have not sent the SyncGroup of this generation.
        member_was_added: a member joined while the group, in generation 0, was in its initial delay.
        topics: that the members are subscribed to; None if that is unknown.
        phase: the timer of the join phase.
        in_initial_delay: that phase is the initial delay, which is never ended early.
        sync_phase: the timer of the sync phase.
        reason: why the last rebalance began.
    """

    def __init__(self, group_id: str, partition: int, now_ms: int | None) -> None:
        self.group_id = group_id
        self.partition = partition
        self.state = EMPTY
        self.state_since_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: dict[str, Timer] = {}
        self.awaiting_sync: set[str] = set()
        self.member_was_added = False
        self.topics: frozenset[str] | None = None
        self.offsets = Offsets()
        self.phase: Timer | None = None
        self.in_initial_delay = False
        self.sync_phase: Timer | None = None
        self.reason = ""

    # State

    def change_state(self, new: GroupState, now_ms: int) -> None:
        """Enter a state; the table must allow it."""
        assert (self.state, new) in ALLOWED, f"Group {self.group_id} may not change from {self.state} to {new}"
        self.state = new
        self.state_since_ms = now_ms

    @property
    def is_dead(self) -> bool:
        """Whether it was deleted, converted or unloaded; nothing of it counts any more."""
        return self.state is DEAD

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin."""
        return self.state in CAN_REBALANCE

    @property
    def is_consumer_group(self) -> bool:
        """Whether its members speak the consumer protocol."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def begin_next_generation(self, now_ms: int) -> None:
        """End the join phase: the generation rises, also when no member is left (GroupMetadata.initNextGeneration).

        After the largest the generation is 1 again. Kafka's becomes negative, and members can commit no more.
        """
        assert (self.leader in self.members) if self.members else self.leader is None, "a member leads, if there is one"
        self.generation = self.generation % LARGEST_GENERATION + 1
        assert 0 < self.generation <= LARGEST_GENERATION
        self.protocol_name = self.selected_protocol() if self.members else None
        self.topics = self._subscribed_topics()
        self.change_state(COMPLETING if self.members else EMPTY, now_ms)
        self.awaiting_sync.clear()

    def restore(self, protocol_type: str, protocol_name: str | None, leader: str | None) -> None:
        """Take what a loaded record says beside the members, which must have been added; the first leads by default."""
        self.protocol_type = protocol_type or None
        self.protocol_name = protocol_name
        self.leader = next(iter(self.members), None) if leader is None else leader
        self.topics = self._subscribed_topics()

    # Members

    def add(self, member: Member) -> None:
        """Add a member; the first one decides the protocol type, and is the leader of a group that has none."""
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.member_id
        assert member.member_id not in self.members, "a member joins once"
        self.members[member.member_id] = member

    def remove(self, member_id: str) -> Member | None:
        """Remove a member, and return it; if it led the group, any other member does now."""
        member = self.members.pop(member_id, None)
        if member is not None and member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.awaiting_sync.discard(member_id)
        return member

    def rename(self, member: Member, new_id: str) -> None:
        """Give a static member another member id; leadership moves with it (GroupMetadata.replaceStaticMember).

        ``awaiting_sync`` keeps the old id, as in Kafka: a member that is replaced before it has synchronised makes the
        group rebalance when the sync phase ends.
        """
        old_id = member.member_id
        assert new_id not in self.members, "the new id is not given yet"
        del self.members[old_id]
        member.member_id = new_id
        self.members[new_id] = member
        if self.leader == old_id:
            self.leader = new_id
        assert member.group_instance_id is not None
        self.static_members[member.group_instance_id] = new_id

    def elect_rejoined_leader(self) -> bool:
        """Make a member that has rejoined the leader, if the leader has not; return whether there is one."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_token is not None:
            return True
        for member in self.members.values():
            if member.join_token is not None:
                self.leader = member.member_id
                return True
        return False

    @property
    def parked_joins(self) -> int:
        """The number of members with a parked JoinGroup."""
        return sum(member.join_token is not None for member in self.members.values())

    @property
    def all_have_joined(self) -> bool:
        """Whether the join phase may end: every member has a parked JoinGroup, and no pending member is expected."""
        return not self.pending_members and self.parked_joins == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """Return the members for the leader; not during a join phase."""
        assert self.state not in {PREPARING, DEAD}
        assert self.protocol_name is not None
        return tuple(member.as_joined(self.protocol_name) for member in self.members.values())

    # Protocols

    def supports(self, protocol_type: str, protocols: Iterable[Protocol]) -> bool:
        """Return whether a member with these protocols fits in (GroupMetadata.supportsProtocols)."""
        names = [*_names(protocols)]
        if self.state is EMPTY:
            return bool(protocol_type and names)
        votes = self._supporters()
        return self.protocol_type == protocol_type and any(votes[name] == len(self.members) for name in names)

    def selected_protocol(self) -> str:
        """Return the protocol, supported by all members, with the most votes.

            The first voted for wins a tie.

        Kafka decides a tie by the order of a hash map.
        """
        supporters = self._supporters()
        candidates = frozenset(name for name, count in supporters.items() if count == len(self.members))
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def _supporters(self) -> Counter[str]:
        """Return the number of supporters of each protocol, in naming order.

        A member that names a protocol twice supports it once. Kafka counts it twice (``incrementSupportedProtocols``),
        and so finds no protocol that as many members support as there are: the join phase never ends.
        """
        return Counter(name for member in self.members.values() for name in dict.fromkeys(_names(member.protocols)))

    # Subscriptions

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member is subscribed to a topic; an unknown subscription counts as one."""
        return self.topics is None or topic in self.topics

    def _subscribed_topics(self) -> frozenset[str] | None:
        if not self.is_consumer_group:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        return subscribed_topics(member.metadata(self.protocol_name) for member in self.members.values())


def _names(protocols: Iterable[Protocol]) -> Iterable[str]:
    return (protocol.name for protocol in protocols)
