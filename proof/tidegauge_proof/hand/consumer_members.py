"""Members of a consumer group (KIP-848) in a cluster that is driven by hand.

A member heartbeats by itself, gives partitions up when the coordinator's response says so, and heartbeats at once when
it has; ``simulator.consumer_groups.consumers`` holds what it remembers and sends. A person may let its revocation
callback hang (``keep_partitions``).
"""

from __future__ import annotations

from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge_proof.hand.actions import Action, ActionError
from tidegauge_proof.hand.coordination import Call, Coordination
from tidegauge_proof.hand.group_names import CONSUMER_GROUP, OFFSETS
from tidegauge_proof.hand.messages import CLIENT
from tidegauge_proof.simulator.consumer_groups.consumers import Consumer

HEARTBEAT_MS = 5_000
"""group.consumer.heartbeat.interval.ms by default."""
REBALANCE_TIMEOUT_MS = 60_000
"""max.poll.interval.ms of the consumers: how long one may take to give partitions up."""


class ConsumerMembers:
    """Members of a consumer group; each method named as an action does it, and returns a sentence.

    Args:
        coordination: the cluster's coordinators.
    """

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._world = coordination.world
        self.members: dict[int, Consumer] = {}
        self.news: list[str] = []
        """News from responses since the last action, as sentences."""
        self._processes: dict[int, int] = {}
        self._sent_ms: dict[int, int] = {}
        self._said: dict[int, frozenset[int]] = {}
        self._keeping: set[int] = set()
        self._positions: dict[int, int] = {}

    # Actions

    def join_consumers(self, action: Action) -> str:
        """Start a consumer; it joins, and goes on by itself."""
        number = action.value("member")
        if number in self.members:
            raise ActionError(f"consumer k{number} is in the group already")
        self._processes[number] = self._processes.get(number, 0) + 1
        consumer = Consumer(f"k{number}-{self._processes[number]}", None, -1, CONSUMER_GROUP, REBALANCE_TIMEOUT_MS)
        consumer.member_id = consumer.name
        self.members[number] = consumer
        self._beat(number)
        return f"Consumer k{number} started; its first heartbeat joins group {CONSUMER_GROUP}."

    def beat_consumer(self, action: Action) -> str:
        """Send a heartbeat before it is due."""
        member, number = self._member(action), action.value("member")
        if "heartbeat" in member.in_flight:
            raise ActionError(f"a heartbeat of consumer k{number} is in flight: deliver or lose it first")
        self._beat(number)
        return f"Consumer k{number} sent a heartbeat."

    def keep_partitions(self, action: Action) -> str:
        """Let the consumer's revocation callback hang from now on."""
        self._member(action)
        number = action.value("member")
        if number in self._keeping:
            raise ActionError(f"consumer k{number} keeps its partitions already: let it give them up")
        self._keeping.add(number)
        return (
            f"Consumer k{number} goes on reading what it is to give up, for at most {REBALANCE_TIMEOUT_MS // 1000} s: "
            "then the coordinator removes it."
        )

    def revoke_partitions(self, action: Action) -> str:
        """Let the consumer's revocation callback return."""
        member, number = self._member(action), action.value("member")
        is_due = bool(member.reads - member.given)
        if number not in self._keeping and not is_due:
            raise ActionError(f"consumer k{number} has nothing to give up")
        self._keeping.discard(number)
        named = ", ".join(f"t-{one}" for one in sorted(member.reads - member.given)) or "nothing"
        self._act_as(number)
        return f"Consumer k{number} gave up {named}, and says so with its next heartbeat."

    def commit_as_consumer(self, action: Action) -> str:
        """Commit a position in one of the consumer's partitions: one further each time."""
        member, number = self._member(action), action.value("member")
        position = self._positions.get(number, 0) + 1
        wanted = member.commit(position)
        if wanted is None:
            raise ActionError(f"consumer k{number} has no partition to commit for, or a commit is in flight")
        self._positions[number] = position
        self._ask(number, member, "commit", wanted)
        return f"Consumer k{number} commits an offset, with member epoch {member.epoch}."

    def leave_consumers(self, action: Action) -> str:
        """Close a consumer: its last heartbeat has member epoch -1."""
        member, number = self._member(action), action.value("member")
        wanted = member.leave()
        if wanted is None:
            raise ActionError(f"consumer k{number} has not joined yet: let time go on, or kill it")
        self._forget(number)
        self._coordination.ask(OFFSETS, Call(CLIENT, wanted, lambda _: None))
        return f"Consumer k{number} leaves group {CONSUMER_GROUP}: member epoch -1."

    def stop_consumer(self, action: Action) -> str:
        """Kill a consumer: it sends no further heartbeat, and its session times out."""
        self._member(action)
        number = action.value("member")
        self._forget(number)
        return f"Consumer k{number} was killed; its session of 45 s runs out."

    def _member(self, action: Action) -> Consumer:
        member = self.members.get(action.value("member"))
        if member is None:
            raise ActionError(f"consumer k{action.value('member')} is not in the group: let it join first")
        return member

    def _forget(self, number: int) -> None:
        del self.members[number]
        self._keeping.discard(number)

    # By itself

    def act(self) -> None:
        """Let members take their due steps."""
        for number in list(self.members):
            self._act_as(number)

    def _act_as(self, number: int) -> None:
        member = self.members[number]
        has_revoked = number not in self._keeping and member.revoke()
        is_due = self._world.now_ms - self._sent_ms[number] >= HEARTBEAT_MS
        if has_revoked or is_due or self._has_news(number, member):
            self._beat(number)

    def _has_news(self, number: int, member: Consumer) -> bool:
        """Whether it owns other partitions than its last heartbeat has named, or has to join again."""
        return member.epoch > 0 and member.reads != self._said.get(number, frozenset()) and member.reads <= member.given

    def _beat(self, number: int) -> None:
        member = self.members[number]
        wanted = member.heartbeat()
        if wanted is None:
            return
        self._sent_ms[number] = self._world.now_ms
        self._said[number] = member.reads
        self._ask(number, member, "heartbeat", wanted)

    def _note(self, number: int, member: Consumer, result: Any) -> None:
        """Note a refusal, and other partitions than those that it could read before."""
        error = getattr(result, "error", ErrorCode.NONE)
        if error is not ErrorCode.NONE:
            self.news.append(f"The heartbeat of k{number} was refused: {error.name}.")
            return
        assignment = getattr(result, "assignment", None)
        given = frozenset() if assignment is None else frozenset(one for _, ones in assignment for one in ones)
        if assignment is not None and given != member.given:
            named = ", ".join(f"t-{one}" for one in sorted(given)) or "nothing"
            self.news.append(f"k{number} may own {named}, epoch {result.member_epoch}.")

    def _ask(self, number: int, member: Consumer, kind: str, request: Any) -> None:
        token = object()

        def done(result: Any) -> None:
            if member.in_flight.get(kind) is token:
                del member.in_flight[kind]
                self._note(number, member, result)
                member.responded(kind, result)
                if self.members.get(number) is member:
                    self._act_as(number)

        def lost() -> None:
            if member.in_flight.get(kind) is token:
                member.give_up(kind)

        member.in_flight[kind] = token
        if not self._coordination.ask(OFFSETS, Call(CLIENT, request, done, lost)):
            lost()
