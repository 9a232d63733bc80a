"""Share coordinators in a simulated cluster, and the leaders of a partition whose records a share group consumes.

The cluster's one partition is __share_group_state's, with all that may happen to it. The partition with the
records is simple: its log is the same for all and only grows, and its leader is some broker, by an epoch that rises. A
former leader goes on, fenced by the share coordinator alone, until it hears of the change.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegauge.errors import ErrorCode
from tidegauge.share_groups import ShareStateResult
from tidegauge_broker.coordinator.consumer_group.topics import TopicDescription
from tidegauge_broker.coordinator.events import ShareStateRequestArrived, TopicsChanged
from tidegauge_broker.coordinator.settings import ShareStateSettings
from tidegauge_broker.coordinator.share_state.coordinator import ShareCoordinator
from tidegauge_broker.share.acquiring import LogBatch, Read
from tidegauge_broker.share.partition import PartitionState
from tidegauge_proof.simulator.coordinator_world import CoordinatorWorld
from tidegauge_proof.simulator.memory_broker import MemoryBroker
from tidegauge_proof.simulator.shares.leaders import ATTEMPTS, KEY, PASSING, Call, Leader, initialization
from tidegauge_proof.simulator.shares.share_checker import ShareChecker, Token
from tidegauge_proof.simulator.shares.share_members import MemberRequest
from tidegauge_proof.simulator.world import World


class ShareWorld(CoordinatorWorld[ShareCoordinator]):
    """The share coordinators and the leaders.

    Attributes:
        leader_epoch: of the partition with the records.
        is_initialized: whether the group coordinator knows that the state is there; it assigns the partition then, and
            not before: an initialization that arrives again would begin the state again, as it does in Kafka.
        leads: the epoch in which each broker takes itself to lead it; the highest is right.
        hosted: the share partition at each broker that has served it.
        log: the batches of the partition.
        unsent: the calls that are to be sent to a coordinator.
        connections: the members' connections that brokers have seen: the number of the last one, by broker and name.
    """

    def __init__(self, world: World, checker: ShareChecker, updates_per_snapshot: int) -> None:
        self.checker = checker
        self._settings = ShareStateSettings(
            partitions=1, updates_per_snapshot=updates_per_snapshot, cold_interval_ms=20_000, prune_interval_ms=1 << 40
        )
        self.leader_epoch = 0
        self.leads: dict[int, int] = {}
        self.hosted: dict[int, Leader] = {}
        self.log: list[LogBatch] = []
        self._calls = 1
        self._initialization = initialization(1)
        self.unsent: list[Call] = [self._initialization]
        self.is_initialized = False
        self.member_requests: list[MemberRequest] = []
        super().__init__(world, checker)

    @property
    def end_offset(self) -> int:
        """Return the end of the partition's log."""
        return self.log[-1].last_offset + 1 if self.log else 0

    def produce(self, count: int) -> None:
        """Append a batch."""
        self.log.append(LogBatch(self.end_offset, self.end_offset + count - 1))

    # Of every coordinator

    def new_coordinator(self, broker: MemoryBroker) -> ShareCoordinator:
        """Return the coordinator of a new process, which knows the topic."""
        coordinator = ShareCoordinator(self._settings, self.world.now_ms, broker.wall)
        coordinator.step(self.world.now_ms)
        topic = TopicDescription("t", KEY.topic_id, ((),))
        coordinator.handle(TopicsChanged({"t": topic}), self.world.now_ms)
        return coordinator

    def event_of(self, token: Token) -> object:
        """Return the event of a request that arrives."""
        return ShareStateRequestArrived(token, token.call.request)

    # Leaders

    def elect(self, broker_id: int) -> None:
        """Have a broker lead the partition with the records."""
        self.leader_epoch += 1
        former = self.hosted.pop(broker_id, None)
        if former is not None:
            former.take(former.core.fence())
        self.leads[broker_id] = self.leader_epoch

    def resign(self, broker_id: int) -> bool:
        """Have a broker hear that it leads no more; return whether there was something to hear."""
        if self.leads.get(broker_id, self.leader_epoch) == self.leader_epoch:
            return False
        del self.leads[broker_id]
        leader = self.hosted.pop(broker_id, None)
        if leader is not None:
            leader.take(leader.core.fence())
            self.settle()
        return True

    @property
    def leader_id(self) -> int:
        """Return the broker that leads the records' partition; -1: it is dead."""
        return next((one for one, epoch in self.leads.items() if epoch == self.leader_epoch), -1)

    def forget_the_dead(self) -> None:
        """Drop the memory of processes that have ended."""
        for broker_id, broker in self.world.brokers.items():
            leader = self.hosted.get(broker_id)
            if not broker.is_running:
                self.leads.pop(broker_id, None)
            if leader is not None and (not broker.is_running or leader.incarnation != broker.incarnation):
                self.leads.pop(broker_id, None)
                del self.hosted[broker_id]
                self._drop_calls(leader)

    def _drop_calls(self, leader: Leader) -> None:
        """Drop the requests of a persister whose process, and with it each connection, has ended."""
        self.unsent = [one for one in self.unsent if one.leader is not leader]
        self.requests = [one for one in self.requests if one.call.leader is not leader]
        self.responses = [one for one in self.responses if one.call.leader is not leader]

    def alive(self) -> Iterator[Leader]:
        """Yield the share partitions at brokers whose processes run."""
        for broker_id, leader in list(self.hosted.items()):
            if self.world.is_up(broker_id):
                yield leader

    def settle(self) -> None:
        """Have persisters send their next requests, and responses leave, after an event of share partitions."""
        for leader in self.hosted.values():
            call = leader.next_call(self._calls + 1)
            if call is not None:
                self._calls += 1
                self.unsent.append(call)
        for request in self.member_requests:
            if not request.has_arrived or request.error is not None:
                continue
            served_by = self.hosted.get(request.broker_id)
            if served_by is not None and request in served_by.responses:
                request.error = served_by.responses.pop(request)
                self.checker.acknowledged(served_by, request, self.world.now_ms)

    # The persister

    def call_failed(self, call: Call) -> None:
        """Try a call again, or end it with its last error after so many attempts; nothing of it is in flight."""
        self._drop_call(call)
        if call.leader is None or call.attempts < ATTEMPTS:
            self.unsent.append(call)
        else:
            call.leader.responded(ShareStateResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self.settle()

    def lost_calls(self) -> list[Call]:
        """Return awaited calls that are neither in flight nor at a coordinator."""
        flying = {one.call for one in self.requests} | {one.call for one in self.responses} | set(self.unsent)
        flying |= self.checker.open_calls()
        calls = [leader.in_flight for leader in self.hosted.values() if leader.in_flight is not None]
        calls += [] if self.is_initialized else [self._initialization]
        return [call for call in calls if call not in flying]

    def take_result(self, call: Call, result: ShareStateResult) -> None:
        """Take a response to a call; one to a call that is over is ignored."""
        if call.leader is None:
            self.is_initialized = self.is_initialized or result.error not in PASSING
            if not self.is_initialized:
                self.call_failed(call)
            else:
                self._drop_call(call)
            return
        if call.leader.in_flight is not call or self.hosted.get(call.leader.broker_id) is not call.leader:
            return
        if result.error in PASSING:
            self.call_failed(call)
            return
        self._drop_call(call)
        call.leader.responded(result)
        self.settle()

    def _drop_call(self, call: Call) -> None:
        """Drop the messages of a call that is over: its connection has brought the response, or is closed."""
        self.requests = [one for one in self.requests if one.call is not call]
        self.responses = [one for one in self.responses if one.call is not call]
        self.unsent = [one for one in self.unsent if one is not call]

    # Requests of members

    def arrive_of_member(self, request: MemberRequest) -> None:
        """Have a broker handle a request of a member."""
        broker_id = request.broker_id
        request.has_arrived = True
        if broker_id not in self.leads:
            request.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return
        leader = self.hosted.get(broker_id)
        if leader is None or leader.is_over:
            incarnation = self.world.brokers[broker_id].incarnation
            leader = self.hosted[broker_id] = Leader(broker_id, incarnation, self.leads[broker_id])
        if request.wanted is not None:
            self._fetch(leader, request)
        elif leader.core.state is PartitionState.ACTIVE:
            self.checker.acknowledges(leader, request, self.world.now_ms)
            leader.take(leader.core.acknowledge(request, request.member.name, request.batches, self.world.now_ms))
        else:
            request.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self.settle()

    def _fetch(self, leader: Leader, request: MemberRequest) -> None:
        request.error = ErrorCode.NONE
        core = leader.core
        if not core.can_acquire():
            return
        offset = core.next_fetch_offset()
        batches = [one for one in self.log if one.last_offset >= offset]
        assert request.wanted is not None
        request.acquired = core.acquire(request.member.name, Read(offset, batches), request.wanted, self.world.now_ms)
        self.checker.acquired(leader, request.member, request.acquired, self.world.now_ms)

    def connection_closed(self, broker_id: int, name: str) -> None:
        """Have the leader release what a member has."""
        leader = self.hosted.get(broker_id)
        if leader is not None and leader.core.state is PartitionState.ACTIVE:
            self.checker.released(leader, name)
            leader.take(leader.core.release(object(), name, self.world.now_ms))
            self.settle()

    def expire_locks(self) -> bool:
        """Have the locks that are due time out at the brokers whose processes run; return whether any was due."""
        is_due = False
        for leader in self.alive():
            deadline_ms = leader.core.next_deadline_ms()
            if deadline_ms is not None and deadline_ms <= self.world.now_ms:
                is_due = True
                self.checker.expired(leader, self.world.now_ms)
                leader.take(leader.core.expire(self.world.now_ms))
        self.settle()
        return is_due
