"""Client applications of a cluster that is driven by hand: transactional producers, and members of groups.

A producer sends what a person asks for, one request at a time, and goes on by what the response says
(``TransactionManager`` of Kafka's clients); errors that pass are retried when time goes on. A member joins, gets an
assignment and sends heartbeats by itself, as Kafka's consumer does (``simulator.groups.members``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegauge.control import NO_LEADER
from tidegauge.errors import ErrorCode
from tidegauge.record_batch import iterate_headers
from tidegauge.transaction_marker import Outcome
from tidegauge.transactions import AddPartitionsToTxn, EndTxn, InitProducerId
from tidegauge_broker.replica.messages import CONSUMER, FetchPartition, FetchRequest
from tidegauge_client.isolation import Aborted, without_aborted
from tidegauge_proof.hand import messages as kinds
from tidegauge_proof.hand.actions import Action, ActionError
from tidegauge_proof.hand.consumer_members import ConsumerMembers
from tidegauge_proof.hand.coordination import TRANSACTION_TIMEOUT_MS, Call, Coordination
from tidegauge_proof.hand.group_names import OFFSETS, TRANSACTIONS
from tidegauge_proof.hand.member_requests import ask_for_member
from tidegauge_proof.hand.messages import CLIENT, Coordinated
from tidegauge_proof.simulator.clients import Produced
from tidegauge_proof.simulator.groups.members import GROUP, Member
from tidegauge_proof.simulator.memory_broker import AT, Reading

HEARTBEAT_MS = 3_000
"""heartbeat.interval.ms by default."""
_RETRIED = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
_MOST_REQUESTS = 8


class TransactionalProducer:
    """One producer with a transactional id of its own.

    Attributes:
        producer_id: -1 before InitProducerId has succeeded.
        is_open: whether it has begun a transaction that it has not ended.
        has_added: whether the partition is in the coordinator's transaction, as far as it knows.
        sequence: of its next batch.
        said: what it has heard last, for people.
    """

    def __init__(self, number: int) -> None:
        self.transactional_id = f"t{number}"
        self.producer_id = self.epoch = -1
        self.is_open = self.has_added = False
        self.sequence = 0
        self.said = ""


class Applications:
    """Producers and consumers; each method named as an action does it, and returns a sentence.

    Args:
        coordination: the cluster's coordinators.
        note: takes each batch that a client produced (``HandCluster.produced``).
        send: puts a message into flight.
    """

    def __init__(self, coordination: Coordination, note: Callable[[Produced], None], send: Any) -> None:
        self._coordination = coordination
        self._world = coordination.world
        self._note = note
        self._send = send
        self.producers: dict[int, TransactionalProducer] = {}
        self.members: dict[int, Member] = {}
        self._heartbeats: dict[int, int] = {}
        self._positions: dict[int, int] = {}
        self._again: list[Callable[[], None]] = []
        self.others: list[Any] = [ConsumerMembers(coordination)]
        """Members of groups of other protocols; each acts by itself, and has methods of its own actions' names."""

    def add(self, members: Any) -> None:
        """Add the members of a share group."""
        self.others.append(members)

    def do(self, action: Action) -> str:
        """Do an action, by whichever application has it.

        Raises:
            ActionError: it has no object now, or the cluster has no such applications.
        """
        one = next((one for one in (self, *self.others) if hasattr(one, action.kind)), None)
        if one is None:
            raise ActionError("this cluster has no share groups: choose them in the settings")
        said: str = getattr(one, action.kind)(action)
        return said

    def news(self) -> list[str]:
        """Return what responses have brought since the last call, as sentences."""
        found = []
        for one in self.others:
            found += one.news
            one.news = []
        return found

    # Transactions

    def _producer(self, action: Action) -> TransactionalProducer:
        return self.producers.setdefault(
            action.value("client"), TransactionalProducer((action.value("client") - 1) // 2 + 1)
        )

    def _ask(self, producer: TransactionalProducer, request: Any, done: Callable[[Any], None]) -> str:
        """Send a request to the producer's coordinator; what fails for now is sent again when time goes on."""

        def taken(result: Any) -> None:
            error = _error_of(result)
            producer.said = error.name
            if error in _RETRIED:
                self._again.append(lambda: self._ask_again(producer, request, done))
            elif error is not ErrorCode.NONE:
                producer.is_open = producer.has_added = False
                producer.producer_id = -1
            else:
                done(result)

        leader = self._coordination.leader_of(TRANSACTIONS)
        if not self._coordination.ask(TRANSACTIONS, Call(CLIENT, request, taken)):
            self._again.append(lambda: self._ask_again(producer, request, done))
            return f"No broker leads {TRANSACTIONS}: the producer looks for its coordinator again."
        return f"Producer {producer.transactional_id} asked its coordinator, broker {leader}: {type(request).__name__}."

    def _ask_again(self, producer: TransactionalProducer, request: Any, done: Callable[[Any], None]) -> None:
        self._ask(producer, request, done)

    def init_transactions(self, action: Action) -> str:
        """Get a producer id and an epoch, which fences whoever had the id before."""
        producer = self._producer(action)

        def done(result: Any) -> None:
            producer.producer_id, producer.epoch = result.producer_id, result.producer_epoch
            producer.sequence, producer.is_open, producer.has_added = 0, False, False

        return self._ask(producer, InitProducerId(producer.transactional_id, TRANSACTION_TIMEOUT_MS), done)

    def begin_transaction(self, action: Action) -> str:
        """Begin a transaction; the coordinator hears of it with its first partition."""
        producer = self._producer(action)
        if producer.producer_id < 0:
            raise ActionError(f"producer {producer.transactional_id} has no producer id: initialise it first")
        if producer.is_open:
            raise ActionError(f"producer {producer.transactional_id} has a transaction open: commit or abort it first")
        producer.is_open = True
        return f"Producer {producer.transactional_id} began a transaction; nothing is sent for that."

    def _need_open(self, producer: TransactionalProducer) -> None:
        if not producer.is_open:
            raise ActionError(f"producer {producer.transactional_id} has no transaction open: begin one")

    def produce_in_transaction(self, action: Action) -> str:
        """Send a batch in the open transaction; the first one is preceded by AddPartitionsToTxn."""
        producer, count = self._producer(action), action.value("count")
        self._need_open(producer)
        if producer.has_added:
            return self._send_batch(producer, count)

        def done(result: Any) -> None:
            del result
            producer.has_added = True
            self._send_batch(producer, count)

        wanted = AddPartitionsToTxn(producer.transactional_id, producer.producer_id, producer.epoch, (AT,))
        return self._ask(producer, wanted, done)

    def _send_batch(self, producer: TransactionalProducer, count: int) -> str:
        leader = self._coordination.leader_of(AT)
        if leader == NO_LEADER:
            return f"No broker leads {AT}: send the batch again later."
        produced = self._world.clients.send_in_transaction(
            count, producer.producer_id, producer.epoch, producer.sequence
        )
        self._note(produced)
        producer.sequence += count

        def arrive() -> str:
            if not self._world.is_up(leader):
                produced.error = "NETWORK_EXCEPTION"
                return f"broker {leader} does not take connections"
            self._coordination.arrive_produce(leader, producer.transactional_id, produced)
            return ""

        named = kinds.names_of_records(produced)
        text = f"Produce({named}, {producer.transactional_id}, epoch {producer.epoch}, transactional)"
        self._send(kinds.COORDINATOR_REQUEST, CLIENT, leader, text, Coordinated(arrive, lambda: None, produced))
        return f"Producer {producer.transactional_id} sent {named} to broker {leader} in its transaction."

    def commit_transaction(self, action: Action) -> str:
        """Commit the open transaction."""
        return self._end(action, Outcome.COMMIT)

    def abort_transaction(self, action: Action) -> str:
        """Abort the open transaction."""
        return self._end(action, Outcome.ABORT)

    def _end(self, action: Action, outcome: Outcome) -> str:
        producer = self._producer(action)
        self._need_open(producer)
        if not producer.has_added:
            producer.is_open = False
            return (
                f"Producer {producer.transactional_id} ended a transaction without records; nothing is sent for that."
            )

        def done(result: Any) -> None:
            del result
            producer.is_open = producer.has_added = False

        return self._ask(
            producer, EndTxn(producer.transactional_id, producer.producer_id, producer.epoch, outcome), done
        )

    def read_committed(self, action: Action) -> str:
        """Read from the start what a broker gives to a consumer with isolation.level=read_committed."""
        broker_id = action.value("broker")
        broker, reading = self._world.brokers[broker_id], Reading()
        if not self._world.is_up(broker_id):
            raise ActionError(f"broker {broker_id} is down or paused")
        request = FetchRequest(CONSUMER, 0, 1, 1 << 20, [FetchPartition(AT, 0, 1 << 20)], reads_committed=True)
        broker.execute(broker.core.fetch(request, reading, self._world.now_ms))
        assert reading.results is not None, "a fetch that waits for nothing is responded to at once"
        ((result, records),) = reading.results
        if result.error is not ErrorCode.NONE:
            return f"Broker {broker_id} refused the consumer's fetch: {result.error.name}."
        headers = list(iterate_headers(records))
        listed = [Aborted(one.first_offset, one.producer_id) for one in result.aborted_transactions or ()]
        number_of = self._world.clients.number_of
        numbers = [
            number_of[one.crc] + place
            for one in without_aborted(records, headers, listed)
            if not one.is_control
            for place in range(one.record_count)
        ]
        named = ", ".join(f"m{number}" for number in numbers) or "no records"
        end = headers[-1].next_offset if headers else 0
        return f"A consumer of committed records read {named} from broker {broker_id}, up to offset {end}."

    # Members of a group

    def _member(self, action: Action) -> Member:
        member = self.members.get(action.value("member"))
        if member is None:
            raise ActionError(f"member {action.value('member')} is not in the group: let it join first")
        return member

    def join_group(self, action: Action) -> str:
        """Start a consumer of the group; it joins, and goes on by itself."""
        number = action.value("member")
        if number in self.members:
            raise ActionError(f"member {number} has joined already")
        self.members[number] = Member(f"c{number}-", None, -1)
        self._act_as(number)
        return f"Consumer c{number} started; it joins group {GROUP}."

    def leave_group(self, action: Action) -> str:
        """Close a consumer: it says good-bye."""
        member, number = self._member(action), action.value("member")
        wanted = member.leave()
        if wanted is None:
            raise ActionError(f"member {number} has no assignment yet: let time go on, or stop it")
        del self.members[number]
        self._coordination.ask(OFFSETS, Call(CLIENT, wanted[1], lambda _: None))
        return f"Consumer c{number} leaves group {GROUP}."

    def stop_member(self, action: Action) -> str:
        """Kill a consumer: it sends no further heartbeat, and its session times out."""
        member, number = self._member(action), action.value("member")
        del self.members[number]
        return f"Consumer c{number} was killed; its session of {member.session_ms // 1000} s runs out."

    def commit_offsets(self, action: Action) -> str:
        """Let a member commit a position in one of its partitions: one further each time."""
        member, number = self._member(action), action.value("member")
        wanted = member.commit(self._positions.get(number, 0) + 1)
        if wanted is None:
            raise ActionError(f"member {number} has no partition to commit for")
        self._positions[number] = self._positions.get(number, 0) + 1
        self._ask_member(member, *wanted)
        return f"Consumer c{number} commits an offset."

    def _ask_member(self, member: Member, kind: str, request: Any) -> bool:
        return ask_for_member(self._coordination, member, kind, request, lambda _: self.act())

    def _act_as(self, number: int) -> None:
        member = self.members[number]
        if member.is_fenced:
            member.restart()
        for _ in range(_MOST_REQUESTS):
            wanted = member.next_request()
            if wanted is None or not self._ask_member(member, *wanted):
                break
        due = self._world.now_ms - self._heartbeats.get(number, 0) >= HEARTBEAT_MS
        wanted = member.heartbeat() if due else None
        if wanted is not None:
            self._heartbeats[number] = self._world.now_ms
            self._ask_member(member, *wanted)

    # As time goes on

    def act(self) -> None:
        """Let members send what they have to send now."""
        for number in list(self.members):
            self._act_as(number)
        for one in self.others:
            one.act()

    def time_passes(self) -> None:
        """Send again what failed for now, and heartbeats that are due."""
        again, self._again = self._again, []
        for one in again:
            one()
        self.act()


def _error_of(result: Any) -> ErrorCode:
    errors = list(result.partitions.values()) if hasattr(result, "partitions") else [result.error]
    return next((error for error in errors if error is not ErrorCode.NONE), ErrorCode.NONE)
