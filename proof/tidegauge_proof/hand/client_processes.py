"""The clients of stories: processes with transactional producers and consumers, and the holds on their requests.

Each method is named as an action does it and returns a sentence; numbers of clients, groups and ids become names by
``Settings.name``. A client goes on by itself as time goes on and responses arrive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegauge.errors import ErrorCode
from tidegauge.transaction_marker import Outcome, TransactionMarker, make_marker
from tidegauge_broker.replica.messages import ACKS_ALL, ProducePartition, ProduceRequest
from tidegauge_proof.hand.actions import Action, ActionError
from tidegauge_proof.hand.client_process import REQUEST_TIMEOUT_MS, ClientProcess
from tidegauge_proof.hand.consumer_process import ConsumerProcess
from tidegauge_proof.hand.producer_process import ProducerProcess
from tidegauge_proof.hand.reading import read
from tidegauge_proof.hand.request_holds import APIS
from tidegauge_proof.hand.transaction_peers import Marked
from tidegauge_proof.simulator.sim_partition import SimPartition

if TYPE_CHECKING:
    from tidegauge_proof.hand.cluster import HandCluster

SESSION_MS = 45_000
"""session.timeout.ms of a consumer by default."""
MAX_POLL_MS = 300_000
"""max.poll.interval.ms by default."""
TRANSACTION_TIMEOUT_MS = 60_000
"""transaction.timeout.ms by default."""


class ClientProcesses:
    """The processes, by their numbers.

    Args:
        cluster: whose clients they are; it has coordinators.
    """

    def __init__(self, cluster: HandCluster) -> None:
        self._cluster = cluster
        self._coordination = cluster.coordination
        self._settings = cluster.settings
        self.producers: dict[int, ProducerProcess] = {}
        self.consumers: dict[int, ConsumerProcess] = {}
        self.taken: dict[int, list[list[int]]] = {}
        """The numbers of the records of each ``take_records`` of a consumer, which may fill later."""
        self.news: list[str] = []
        self.read: list[int] = []
        """Numbers of the records of the last read."""
        self._coordination.watch = self.look

    # By themselves

    def act(self) -> None:
        """Let the processes take their due steps."""
        for one in [*self.producers.values(), *self.consumers.values()]:
            one.act()

    def look(self) -> None:
        """Let producers take the responses to their batches."""
        for one in list(self.producers.values()):
            one.look()

    # Producers

    def _producer(self, action: Action) -> ProducerProcess:
        producer = self.producers.get(action.value("client"))
        if producer is None or producer.is_dead:
            raise ActionError(f"there is no producer {action.value('client')}: start it first")
        return producer

    def start_producer(self, action: Action) -> str:
        """Start a process with a producer, which takes its transactional id over."""
        number = action.value("client")
        name = self._settings.name("producer", number)
        transactional_id = self._settings.name("transactional id", action.value("id"))
        producer = ProducerProcess(
            name,
            transactional_id,
            self._coordination,
            self._cluster.has_sent,
            action.value("timeout_ms") or TRANSACTION_TIMEOUT_MS,
            action.value("request_ms") or REQUEST_TIMEOUT_MS,
        )
        if number in self.producers:
            self.producers[number].kill()
        self.producers[number] = producer
        producer.begin(producer.initialize)
        return f"Producer {name} started; it takes over the transactional id {transactional_id}."

    def begin_transaction_of(self, action: Action) -> str:
        """Begin a transaction; the coordinator hears of it with its first partition."""
        producer = self._producer(action)
        producer.is_open = True
        return f"Producer {producer.name} began a transaction; nothing is sent for that."

    def send_in_transaction(self, action: Action) -> str:
        """Send a batch in the producer's transaction."""
        producer, count = self._producer(action), action.value("count")
        partition = self._partition(action)
        first = partition.clients.take_numbers(count)
        named = ", ".join(self._cluster.label(first + place) for place in range(count))
        producer.begin(lambda: producer.send(first, count, partition.at.partition))
        return f"Producer {producer.name} sends {named} to {partition.at} in its transaction."

    def send_offsets(self, action: Action) -> str:
        """Commit an offset of a group in the producer's transaction."""
        producer, offset = self._producer(action), action.value("offset")
        group = self._settings.name("group", action.value("group"))
        partition = self._partition(action)
        producer.begin(lambda: producer.send_offsets(group, {partition.at.partition: offset}))
        what = f"offset {offset} of {partition.at} for group {group}"
        return f"Producer {producer.name} commits {what} in its transaction."

    def end_transaction(self, action: Action) -> str:
        """Commit or abort the producer's transaction."""
        producer, is_commit = self._producer(action), action.value("commit")
        producer.begin(lambda: producer.end(Outcome.COMMIT if is_commit else Outcome.ABORT))
        return f"Producer {producer.name} {'commits' if is_commit else 'aborts'} its transaction."

    def kill_producer(self, action: Action) -> str:
        """Kill the producer's process."""
        producer = self._producer(action)
        producer.kill()
        return f"Producer {producer.name} was killed."

    def pause_producer(self, action: Action) -> str:
        """Pause the producer's process."""
        return self._paused(self._producer(action), is_paused=True)

    def resume_producer(self, action: Action) -> str:
        """Resume the producer's process."""
        return self._paused(self._producer(action), is_paused=False)

    def _paused(self, process: ClientProcess, *, is_paused: bool) -> str:
        process.is_paused = is_paused
        process.act()
        return f"The process of {process.name} {'is paused (SIGSTOP)' if is_paused else 'continues'}."

    # Consumers

    def _consumer(self, action: Action) -> ConsumerProcess:
        consumer = self.consumers.get(action.value("client"))
        if consumer is None or consumer.is_dead:
            raise ActionError(f"there is no consumer {action.value('client')}: start it first")
        return consumer

    def start_consumer(self, action: Action) -> str:
        """Start a process with a consumer, which joins its group."""
        number, instance = action.value("client"), action.value("instance")
        name = self._settings.name("consumer", number)
        group = self._settings.name("group", action.value("group"))
        if number in self.consumers:
            self.consumers[number].kill()
        consumer = self.consumers[number] = ConsumerProcess(
            name,
            group,
            self._coordination,
            instance_id=self._settings.name("instance", instance) if instance else None,
            session_ms=action.value("session_ms") or SESSION_MS,
            max_poll_ms=action.value("max_poll_ms") or MAX_POLL_MS,
            auto_commit=action.value("auto_commit"),
            is_committed=bool(action.value("committed")),
            partitions=len(self._cluster.data),
        )
        consumer.act()
        return f"Consumer {name} started; it joins group {group}."

    def take_records(self, action: Action) -> str:
        """Let a consumer take its next records, and perhaps be busy with them."""
        consumer, count, busy = self._consumer(action), action.value("count"), bool(action.value("busy"))
        into: list[int] = []
        self.taken.setdefault(action.value("client"), []).append(into)
        consumer.begin(lambda: consumer.consume(count, into, busy=busy))
        then = " It is busy with them and does not poll." if busy else ""
        return f"Consumer {consumer.name} takes its next {count} records.{then}"

    def commit_of_consumer(self, action: Action) -> str:
        """Let a consumer commit what it has got."""
        consumer = self._consumer(action)
        consumer.begin(consumer.commit)
        return f"Consumer {consumer.name} commits what it has got."

    def poll_of_consumer(self, action: Action) -> str:
        """Let a busy consumer poll again."""
        consumer = self._consumer(action)
        consumer.begin(consumer.poll)
        consumer.act()
        return f"Consumer {consumer.name} polls again."

    def kill_consumer(self, action: Action) -> str:
        """Kill the consumer's process."""
        consumer = self._consumer(action)
        consumer.kill()
        return f"Consumer {consumer.name} was killed; its session of {consumer.member.session_ms // 1000} s runs out."

    def close_consumer(self, action: Action) -> str:
        """Close the consumer."""
        consumer = self._consumer(action)
        consumer.begin(consumer.close)
        return f"Consumer {consumer.name} was closed."

    # Requests that are held

    def hold_requests(self, action: Action) -> str:
        """Hold the requests of an API at a broker, or their responses."""
        broker, api = action.value("broker"), APIS[action.value("api")]
        is_after, once = bool(action.value("after")), bool(action.value("once"))
        self._coordination.holds.hold(broker, api, is_after=is_after, once=once)
        which = "its next response to" if once else "its responses to"
        what = f"{which} {api}" if is_after else f"{'the next' if once else 'requests of'} {api}"
        return f"Broker {broker} holds {what}."

    def release_requests(self, action: Action) -> str:
        """Release what a broker holds."""
        broker = action.value("broker")
        if not self._coordination.holds.has(broker):
            raise ActionError(f"broker {broker} holds no requests")
        count = self._coordination.holds.release(broker)
        return f"Broker {broker} releases {count} requests."

    def break_response(self, action: Action) -> str:
        """Lose the next response of an API."""
        broker, api = action.value("broker"), APIS[action.value("api")]
        self._coordination.holds.break_response(broker, api)
        return f"The connection of the next {api} at broker {broker} will break before its response is sent."

    # Readers and administrators

    def _partition(self, action: Action) -> SimPartition:
        data, number = self._cluster.data, action.value("partition")
        if number >= len(data):
            raise ActionError(f"there is no partition {number} here")
        return data[number]

    def read_partition(self, action: Action) -> str:
        """Read a partition from the start, by an isolation level."""
        partition, is_committed = self._partition(action), bool(action.value("committed"))
        leader = partition.state_now.leader
        if leader not in self._cluster.world.brokers or not self._cluster.world.is_up(leader):
            raise ActionError(f"no broker leads {partition.at}")
        found = read(self._cluster.world, partition, leader, 0, is_committed=is_committed)
        if found.error is not ErrorCode.NONE:
            return f"Broker {leader} refused the consumer's fetch: {found.error.name}."
        self.read = [number for _, number in found.records]
        named = ", ".join(self._cluster.label(number) for number in self.read) or "no records"
        level = "read_committed" if is_committed else "read_uncommitted"
        return f"A consumer with isolation.level={level} read {named} of {partition.at} from broker {leader}."

    def abort_hanging(self, action: Action) -> str:
        """Write an ABORT marker for a producer's open transaction, as kafka-transactions.sh --abort does (KIP-664)."""
        partition, start = self._partition(action), action.value("start")
        leader = partition.state_now.leader
        opened = next((one for one in open_transactions(partition) if one[0] == start), None)
        if opened is None:
            raise ActionError(f"{partition.at} has no open transaction from offset {start} on")
        stored, (_, producer_id, epoch) = partition.brokers[leader], opened
        marker = TransactionMarker(producer_id, epoch, Outcome.ABORT, -1)
        world = self._cluster.world
        batch = make_marker(marker, stored.broker.wall.at(world.now_ms))
        items = [ProducePartition(partition.at, batch)]
        request = ProduceRequest(ACKS_ALL, REQUEST_TIMEOUT_MS, items, from_coordinator=True)
        token = Marked(stored.incarnation, lambda _: None)
        stored.broker.execute(stored.core.produce(request, token, world.now_ms))
        return f"Broker {leader} wrote an ABORT marker of producer {producer_id} to {partition.at}, by hand."

    def open_transactions(self, number: int) -> list[tuple[int, int, int]]:
        """Return the open transactions of a partition (``open_transactions``)."""
        return open_transactions(self._cluster.data[number])


def open_transactions(partition: SimPartition) -> list[tuple[int, int, int]]:
    """Return the open transactions at a leader: first offset, producer id, epoch."""
    stored = partition.brokers.get(partition.state_now.leader)
    found = [] if stored is None or not stored.leads else stored.core.describe_producers(partition.at)
    assert not isinstance(found, ErrorCode), "the leader describes its producers"
    return [
        (one.transaction_start, one.producer_id, one.producer_epoch)
        for one in found
        if one.transaction_start is not None
    ]
