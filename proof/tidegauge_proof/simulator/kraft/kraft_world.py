"""A cluster in KRaft mode in virtual time: the quorum, its controllers, the brokers, and the requests between them.

Everything that happens is an entry of one of two heaps, the quorum's and the world's, so that a seed gives one history.
A request from a broker goes to the node that its own node takes for the leader, as in Kafka, and may be late or lost in
either direction; the broker gives it up after a while. Broker N's node of the quorum has the broker's id.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

from tidegauge.control import IsrProposal, IsrVerdict
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.kafka.metadata_records.feature_level_record import FeatureLevelRecord
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import (
    ACKS_ALL,
    CoreSettings,
    ProducePartition,
    ProduceRequest,
    ProduceResult,
    TopicRules,
)
from tidegauge_broker.server.cluster.kraft.lifecycle import Beat, BrokerState, Register
from tidegauge_controller.metadata.decisions import activation, registration, topics
from tidegauge_controller.metadata.decisions import brokers as of_brokers
from tidegauge_controller.metadata.decisions import partitions as of_partitions
from tidegauge_controller.metadata.decisions.reassignment import Reassignment, alter_reassignments
from tidegauge_controller.metadata.decisions.view import ControllerSettings
from tidegauge_controller.metadata.delta import RECOVERED, RECOVERING
from tidegauge_controller.metadata.image import FeatureRange, MetadataImage, NodeEndpoint
from tidegauge_controller.metadata.records import made
from tidegauge_controller.raft import effects, events
from tidegauge_controller.raft.values import OffsetAndEpoch
from tidegauge_proof.simulator.clients import Clients, Produced
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.follower_rounds import FollowerRounds
from tidegauge_proof.simulator.kraft.kraft_checker import MIN_ISR, KRaftChecker
from tidegauge_proof.simulator.kraft.kraft_quorum import KRaftQuorum
from tidegauge_proof.simulator.kraft.metadata_node import MetadataNode
from tidegauge_proof.simulator.kraft.sim_broker import SimBroker
from tidegauge_proof.simulator.kraft.sim_controller import SimController, Write
from tidegauge_proof.simulator.memory_broker import MemoryBroker
from tidegauge_proof.simulator.memory_log import START_MS
from tidegauge_proof.simulator.traffic import Exchange, Traffic

CLUSTER_ID = "pQKNjKG6SIW1R46E3fVjJA"
TOPIC = "orders"
SESSION_MS = 1000
POLL_MS = 20
FENCE_MS = SESSION_MS // 8
GIVE_UP_MS = 300
_LAG_MS = 400
_FETCH_WAIT_MS = 50
_PRODUCE_MS = 400
_FEATURES = {
    "metadata.version": FeatureRange(7, 30),
    "kraft.version": FeatureRange(0, 1),
    "eligible.leader.replicas.version": FeatureRange(0, 1),
}
_RETRIED = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR})
"""Errors after which a broker sends a proposal again (``KRaftRequests``)."""
_NONE = ErrorCode.NONE


class KRaftWorld(FollowerRounds):
    """The cluster in KRaft mode.

    Args:
        dice: chooses.
        quorum: the nodes; the first ones are the controllers.
        controllers: how many these are.
        partitions: how many the topic has; each broker has a replica of all.
        elr: whether eligible leader replicas are enabled.
    """

    def __init__(self, dice: Dice, quorum: KRaftQuorum, controllers: int, partitions: int, *, elr: bool) -> None:
        self.dice = dice
        self.quorum = quorum
        self.elr = elr
        self.loss = 0.0
        self.longest_ms = 5
        self.severed: set[tuple[int, int]] = set()
        """Pairs (from, to) of brokers, or of a broker and -1 for all controllers, between which nothing passes."""
        self.partitions = [TopicPartition(TOPIC, number) for number in range(partitions)]
        self.clients = {at: Clients(1_000_000 * at.partition) for at in self.partitions}
        self.now_ms = START_MS
        self.traffic = Traffic()
        settings = CoreSettings(replica_lag_time_max_ms=_LAG_MS, replica_fetch_backoff_ms=20, emits_diagnostics=False)
        rules = TopicRules(min_insync_replicas=MIN_ISR)
        ids = [one for one in quorum.nodes if one >= controllers]
        self.nodes = {one: SimBroker(one, settings, rules, self.partitions, self._look_at, self._seen) for one in ids}
        self.brokers = {one: node.replicas for one, node in self.nodes.items()}
        self.open_rounds = {one: [] for one in ids}
        self.checker = KRaftChecker(self.nodes, self.partitions)
        self.controllers: dict[int, SimController] = {}
        self.metadata: dict[int, MetadataNode] = {}
        self.controller_ids = [one for one in quorum.nodes if one < controllers]
        self._calls: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = 0
        self.served = 0

    # Time

    @property
    def inputs(self) -> int:
        """The number of events that the code under test was given."""
        return self.quorum.inputs + self.served + sum(one.inputs for one in self.brokers.values())

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call something after a while."""
        self._numbers += 1
        heapq.heappush(self._calls, (self.quorum.now_ms + delay_ms, self._numbers, call))

    def run(self, duration_ms: int) -> None:
        """Let time pass, and everything that falls into it happen."""
        quorum = self.quorum
        until = quorum.now_ms + duration_ms
        while True:
            coming = [one for one in (quorum.next_ms(), self._calls[0][0] if self._calls else None) if one is not None]
            if not coming or min(coming) > until:
                break
            at = max(min(coming), quorum.now_ms)
            quorum.run(at - quorum.now_ms)
            self.now_ms = START_MS + quorum.now_ms
            self._quorum_moved()
            while self._calls and self._calls[0][0] <= quorum.now_ms:
                heapq.heappop(self._calls)[2]()
                self._quorum_moved()
        quorum.run(until - quorum.now_ms)
        self.now_ms = START_MS + quorum.now_ms
        self._quorum_moved()

    def _quorum_moved(self) -> None:
        """Let controllers and brokers have what their nodes report, until nothing is left."""
        while self.quorum.heard:
            heard, self.quorum.heard = self.quorum.heard, []
            for node_id, incarnation, effect in heard:
                controller = self.controllers.get(node_id)
                if controller is None or self.quorum.nodes[node_id].incarnation != incarnation:
                    continue
                if isinstance(effect, effects.LeadershipChanged):
                    controller.leadership_changed(effect.leader_id, effect.epoch)
                else:
                    controller.decided(effect)
            for node_id in list(self.controllers):
                self._controller_goes_on(node_id)
        for node_id, broker in self.nodes.items():
            node = self.quorum.nodes[node_id]
            if node.raft is not None and broker.is_up and broker.metadata.next_offset < (node.raft.high_watermark or 0):
                broker.metadata.take(node.disk, node.raft.high_watermark)
        for node_id in list(self.controllers):
            self._controller_goes_on(node_id)

    def _controller_goes_on(self, node_id: int) -> None:
        node, controller = self.quorum.nodes[node_id], self.controllers[node_id]
        if node.raft is None or node.is_paused:
            return
        metadata, high_watermark = self.metadata[node_id], node.raft.high_watermark or 0
        if metadata.next_offset >= high_watermark and not controller.has_work:
            return
        metadata.take(node.disk, high_watermark)
        controller.go_on(high_watermark, node.raft.log.end_offset, self._clock(node_id))
        self.checker.controller(node_id, controller, metadata.image)

    def _clock(self, node_id: int) -> int:
        return self.quorum.now_ms + self.quorum.nodes[node_id].clock_offset_ms

    def _seen(self, image: MetadataImage) -> None:
        self.checker.loaded(image)

    # Controllers

    def start_controller(self, node_id: int) -> None:
        """Start a controller's process."""
        metadata = self.metadata[node_id] = MetadataNode(self._seen)
        settings = ControllerSettings(node_id, CLUSTER_ID, session_timeout_ms=SESSION_MS, min_insync_replicas=MIN_ISR)
        give = partial(self._give, node_id)
        self.controllers[node_id] = SimController(
            settings, self._bootstrap(), metadata, give, lambda: self.quorum.checker.committed_end
        )
        self.quorum.start(node_id)
        self.later(FENCE_MS, partial(self._fence, node_id, self.quorum.nodes[node_id].incarnation))

    def _bootstrap(self) -> list[MetadataRecord]:
        found = [made(FeatureLevelRecord("metadata.version", 30))]
        return [*found, made(FeatureLevelRecord("eligible.leader.replicas.version", 1))] if self.elr else found

    def _give(self, node_id: int, event: events.Event) -> None:
        self.quorum.give(node_id, event)

    def _fence(self, node_id: int, incarnation: int) -> None:
        """Run the periodic task that fences brokers, and come again."""
        node = self.quorum.nodes[node_id]
        if node.raft is None or node.incarnation != incarnation:
            return
        controller = self.controllers[node_id]
        if controller.active is not None and not node.is_paused:
            controller.write(
                Write(lambda active, now_ms: of_brokers.fence_one_stale_broker(active.view, active.heartbeats, now_ms))
            )
        self.later(FENCE_MS, partial(self._fence, node_id, incarnation))

    def kill_controller(self, node_id: int, *, loses_power: bool) -> None:
        """End a controller's process."""
        self.quorum.die(node_id, loses_power=loses_power)
        del self.controllers[node_id], self.metadata[node_id]

    def active(self) -> SimController | None:
        """Return the controller that is active in the highest epoch, if any."""
        found = [one for one in self.controllers.values() if one.active is not None]
        return max(found, key=lambda one: one.active.epoch if one.active is not None else -1, default=None)

    def create_topic(self) -> None:
        """Ask the active controller for the topic."""
        controller = self.active()
        assert controller is not None
        ids = list(self.nodes)
        assignment = [
            (at.partition, [*ids[at.partition % len(ids) :], *ids[: at.partition % len(ids)]]) for at in self.partitions
        ]
        random = Random(self.dice.below(1 << 30))
        topic = topics.TopicToCreate(TOPIC, assignment=assignment)
        controller.write(Write(lambda active, _: topics.create_topics(active.view, [topic], random)))

    # Brokers

    def start_broker(self, broker_id: int) -> None:
        """Start a broker's process, and its node."""
        broker = self.nodes[broker_id]
        broker.start(self.now_ms)
        self.quorum.start(broker_id)
        self.later(1 + self.dice.below(POLL_MS), partial(self._poll, broker_id, broker.incarnation))

    def kill_broker(self, broker_id: int, *, loses_power: bool) -> None:
        """End a broker's process; with the power goes what its logs have not flushed, or a part of that."""
        broker = self.nodes[broker_id]
        broker.die()
        self.quorum.die(broker_id, loses_power=loses_power)
        self.open_rounds[broker_id] = []
        self.lose_requests_at(broker_id)
        if not loses_power:
            return
        broker.may_have_lost = True
        for replica in broker.replicas.replicas.values():
            unflushed = replica.log.log_end_offset - replica.flushed
            if unflushed > 0:
                replica.lose_beyond(replica.log.whole_batches_below(replica.flushed + self.dice.below(unflushed + 1)))

    def stop_broker(self, broker_id: int) -> None:
        """Begin the controlled shutdown of a broker."""
        self.nodes[broker_id].lifecycle.begin_shutdown(self.now_ms)

    def pause_broker(self, broker_id: int, *, is_paused: bool) -> None:
        """Stop a broker's process, or let it go on."""
        self.nodes[broker_id].is_paused = is_paused
        self.quorum.nodes[broker_id].is_paused = is_paused
        if not is_paused:
            self.quorum.resume(broker_id)

    def _poll(self, broker_id: int, incarnation: int) -> None:
        """Let a broker do its due work, and schedule the next call."""
        broker = self.nodes[broker_id]
        if broker.incarnation != incarnation or not broker.is_running:
            return
        self.later(1 + self.dice.below(2 * POLL_MS), partial(self._poll, broker_id, incarnation))
        if broker.is_paused:
            return
        lifecycle = broker.lifecycle
        request = lifecycle.next_request(self.now_ms)
        if isinstance(request, Register):
            self._register(broker)
        elif isinstance(request, Beat):
            self._beat(broker, request)
        if lifecycle.state in {BrokerState.NOT_RUNNING, BrokerState.STARTING}:
            return
        if lifecycle.state is BrokerState.SHUTTING_DOWN:
            self._shut_down(broker)
            return
        if broker.applied.provenance != broker.metadata.image.provenance and self.dice.happens(0.7):
            broker.apply(self.now_ms)
            self.checker.applied(broker)
            if lifecycle.state is BrokerState.RECOVERY:
                lifecycle.ready_to_unfence(self.now_ms)
        broker.replicas.execute(broker.replicas.core.tick(self.now_ms))
        for exchange in self.ask(broker_id):
            self._send_round(exchange)
        self._propose(broker)

    def _shut_down(self, broker: SimBroker) -> None:
        """End a process that may: its logs are flushed, and it notes its broker epoch (``.kafka_cleanshutdown``)."""
        epoch = broker.lifecycle.broker_epoch
        broker.replicas.write_checkpoint()
        broker.replicas.flush()
        self.kill_broker(broker.broker_id, loses_power=False)
        broker.replicas.ended_in_order()
        broker.clean_epoch = epoch

    # Requests of brokers to the active controller

    def _ask_controller(
        self,
        broker: SimBroker,
        write: Callable[[Callable[[Any], None], Callable[[ErrorCode], None]], Write],
        done: Callable[[Any], None],
        failed: Callable[[ErrorCode], None],
    ) -> Callable[[SimController], None] | None:
        """Send a request to the leader that the broker knows; one outcome reaches the broker's process, or time-out."""
        incarnation = broker.incarnation
        is_open = [True]

        def outcome(call: Callable[..., None], *arguments: Any) -> None:
            if is_open[0] and broker.is_running and broker.incarnation == incarnation:
                if broker.is_paused:
                    self.later(POLL_MS, partial(outcome, call, *arguments))
                    return
                is_open[0] = False
                call(*arguments)

        def respond(call: Callable[..., None], *arguments: Any) -> None:
            if not self._is_lost(-1, broker.broker_id):
                self.later(self._delay(), partial(outcome, call, *arguments))

        def arrive(target: int, target_incarnation: int) -> None:
            node = self.quorum.nodes[target]
            controller = self.controllers.get(target)
            if controller is None or node.raft is None or node.incarnation != target_incarnation or node.is_paused:
                return
            self.served += 1
            controller.write(write(partial(respond, done), partial(respond, failed)))
            self._controller_goes_on(target)

        raft = self.quorum.nodes[broker.broker_id].raft
        leader = None if raft is None else raft.state.leader_id
        self.later(GIVE_UP_MS, partial(outcome, failed, ErrorCode.REQUEST_TIMED_OUT))
        if leader is not None and leader in self.controllers and not self._is_lost(broker.broker_id, -1):
            self.later(self._delay(), partial(arrive, leader, self.quorum.nodes[leader].incarnation))
        return None

    def _delay(self) -> int:
        return 1 + self.dice.below(self.longest_ms)

    def _is_lost(self, sender: int, receiver: int) -> bool:
        return (sender, receiver) in self.severed or (self.loss > 0 and self.dice.happens(self.loss))

    def _register(self, broker: SimBroker) -> None:
        """Send a registration, which is not decided if its process, and so its connection, has ended meanwhile."""
        incarnation = broker.incarnation
        request = registration.RegistrationRequest(
            broker.broker_id,
            CLUSTER_ID,
            _uuid(50 + broker.broker_id, broker.incarnation),
            (NodeEndpoint("PLAINTEXT", "localhost", 9092 + broker.broker_id, 0),),
            _FEATURES,
            log_dirs=(_uuid(broker.broker_id, 0),),
            previous_broker_epoch=broker.previous_epoch,
        )

        def write(done: Callable[[Any], None], failed: Callable[[ErrorCode], None]) -> Write:
            def decide(active: Any, now_ms: int) -> Any:
                if broker.incarnation != incarnation or not broker.is_running:
                    raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION)
                return registration.register_broker(active.view, active.heartbeats, request, 0, now_ms)

            return Write(decide, done, failed)

        def registered(epoch: int) -> None:
            broker.lifecycle.registered(epoch, self.now_ms)
            broker.registered(epoch)
            broker.may_have_lost = False

        self._ask_controller(broker, write, registered, lambda _: broker.lifecycle.registration_failed(self.now_ms))

    def _beat(self, broker: SimBroker, beat: Beat) -> None:
        offset = broker.applied.provenance.offset
        if broker.lifecycle.state is BrokerState.STARTING:
            offset = broker.metadata.image.provenance.offset
        epoch = broker.lifecycle.broker_epoch
        request = of_brokers.HeartbeatRequest(
            broker.broker_id, epoch, offset, beat.wants_fence, beat.wants_shut_down, (), ()
        )

        def write(done: Callable[[Any], None], failed: Callable[[ErrorCode], None]) -> Write:
            def decide(active: Any, now_ms: int) -> Any:
                if active.image.brokers.get(broker.broker_id) is not None:
                    active.heartbeats.contacted(broker.broker_id, epoch, now_ms)
                return of_brokers.heartbeat(active.view, active.heartbeats, request)

            def appended(active: Any, response: of_brokers.HeartbeatResponse, last: int) -> None:
                if response.begins_shutdown:
                    active.heartbeats.shutdown_began(broker.broker_id, last)

            return Write(decide, done, failed, appended)

        def responded(response: of_brokers.HeartbeatResponse) -> None:
            broker.lifecycle.beat_responded(
                is_caught_up=response.is_caught_up,
                is_fenced=response.is_fenced,
                may_shut_down=response.should_shut_down,
                now_ms=self.now_ms,
            )

        self._ask_controller(broker, write, responded, lambda _: broker.lifecycle.beat_failed(self.now_ms))

    def allocate_producer_ids(self, broker: SimBroker) -> None:
        """Ask for a block of producer ids (AllocateProducerIds)."""
        epoch = broker.lifecycle.broker_epoch

        def write(done: Callable[[Any], None], failed: Callable[[ErrorCode], None]) -> Write:
            return Write(
                lambda active, _: activation.allocate_producer_ids(active.view, broker.broker_id, epoch), done, failed
            )

        self._ask_controller(broker, write, lambda block: self.checker.producer_ids(*block), lambda _: None)

    def reassign(self, at: TopicPartition, replicas: tuple[int, ...] | None) -> None:
        """Ask the active controller for other replicas of a partition; None cancels the one in progress."""
        controller = self.active()
        if controller is None:
            return
        if replicas is not None:
            self.checker.targets[at].add(replicas)
        wanted = [Reassignment(at.topic, at.partition, replicas)]
        controller.write(Write(lambda active, _: alter_reassignments(active.view, wanted)))

    def snapshot(self, node_id: int, *, cleans: bool) -> bool:
        """Let a node make a snapshot of its newest image, and perhaps delete the log below; return whether it could."""
        node = self.quorum.nodes[node_id]
        metadata = self.nodes[node_id].metadata if node_id in self.nodes else self.metadata.get(node_id)
        raft = node.raft
        if raft is None or raft.is_blocked or node.is_paused or node.backlog or metadata is None:
            return False
        newest = raft.log.newest_snapshot
        is_new = newest is None or metadata.next_offset > newest.offset
        if metadata.in_transaction or metadata.image.metadata_version is None or not is_new:
            return False
        key = OffsetAndEpoch(metadata.next_offset, metadata.image.provenance.epoch)
        batches = tuple(batch for batch in node.disk.whole() if batch.end_offset <= key.offset)
        self.quorum.checker.snapshot(key, batches)
        node.disk.snapshots[key] = self.quorum.content(batches, node.disk.static)
        self.quorum.give(node_id, events.SnapshotCreated(key))
        if cleans:
            node.disk.move_start(key)
            self.quorum.give(node_id, events.LogStartMoved(key.offset))
        return True

    @property
    def snapshots_loaded(self) -> int:
        """How many processes have begun with the image of a snapshot, or went on with one."""
        running = [*self.metadata.values(), *(broker.metadata for broker in self.nodes.values())]
        return sum(one.snapshots_loaded for one in running)

    def _propose(self, broker: SimBroker) -> None:
        """Send the next ISR proposal, one at a time (AlterPartition)."""
        if broker.asking is not None or not broker.outbox:
            return
        proposal = broker.outbox[0]
        broker.asking = proposal
        members = [(member, broker.epoch_of(member)) for member in proposal.new_isr]
        if members and proposal.joiner_epoch >= 0:
            members[-1] = (members[-1][0], proposal.joiner_epoch)
        change = of_partitions.IsrChange(
            proposal.topic_id,
            proposal.topic_partition.partition,
            proposal.leader_epoch,
            proposal.partition_epoch,
            tuple(members),
            RECOVERING if proposal.recovering else RECOVERED,
        )
        epoch = broker.lifecycle.broker_epoch

        def write(done: Callable[[Any], None], failed: Callable[[ErrorCode], None]) -> Write:
            return Write(
                lambda active, _: of_partitions.alter_partition(active.view, broker.broker_id, epoch, [change]),
                done,
                failed,
            )

        def verdict(found: IsrVerdict) -> None:
            broker.asking = None
            broker.outbox.popleft()
            broker.replicas.execute(broker.replicas.core.isr_verdict(proposal, found, self.now_ms))

        def done(results: list[of_partitions.IsrResult]) -> None:
            verdict(_verdict(proposal, results[0]))

        def failed(error: ErrorCode) -> None:
            broker.asking = None
            if error not in _RETRIED and error is not ErrorCode.REQUEST_TIMED_OUT:
                broker.asking = proposal
                verdict(IsrVerdict(proposal.topic_partition, error))

        self._ask_controller(broker, write, done, failed)

    # Followers

    def _send_round(self, exchange: Exchange) -> None:
        follower, leader = exchange.follower.broker_id, exchange.chosen.leader
        self.later(2 * GIVE_UP_MS, partial(self._expire, exchange))
        if not self._is_lost(follower, leader):
            self.later(self._delay(), partial(self._arrive, exchange))

    def _arrive(self, exchange: Exchange) -> None:
        leader = self.nodes[exchange.chosen.leader]
        if leader.is_up and exchange in self.open_rounds[exchange.follower.broker_id]:
            self.arrive(exchange, _FETCH_WAIT_MS)
            self._send_responses()

    def _send_responses(self) -> None:
        responses, self.traffic.responses = self.traffic.responses, []
        for exchange in responses:
            if not self._is_lost(exchange.chosen.leader, exchange.follower.broker_id):
                self.later(self._delay(), partial(self._respond, exchange))

    def _respond(self, exchange: Exchange) -> None:
        if self.nodes[exchange.follower.broker_id].is_up and self._is_open(exchange):
            self.deliver_response(exchange)

    def _is_open(self, exchange: Exchange) -> bool:
        return exchange in self.open_rounds[exchange.follower.broker_id]

    def _expire(self, exchange: Exchange) -> None:
        if self._is_open(exchange):
            self.give_up(exchange)

    def _look_at(self, broker: MemoryBroker) -> None:
        """Take what a core has responded."""
        node = self.nodes[broker.broker_id]
        reported = broker.reported
        if reported.fetched:
            for token, found in reported.fetched:
                assert isinstance(token, Exchange)
                token.response = found
                self.traffic.responses.append(token)
            reported.fetched = []
            self._send_responses()
        if reported.proposals:
            node.outbox.extend(reported.proposals)
            reported.proposals = []
        if reported.produced:
            for token, results in reported.produced:
                assert isinstance(token, Produced)
                for result in results:
                    self._produced(broker, token, result)
            reported.produced = []
        reported.leaderships = []
        reported.committed = {}

    # Clients

    def leading(self) -> Iterator[tuple[SimBroker, TopicPartition]]:
        """Yield the brokers that believe that they lead, each with the partition."""
        for broker in self.nodes.values():
            if broker.is_up and broker.lifecycle.state is BrokerState.RUNNING:
                for at in self.partitions:
                    if broker.replicas.replicas[at].leads:
                        yield broker, at

    def produce(self, broker: SimBroker, at: TopicPartition, record_count: int) -> None:
        """Let a client send a batch to a broker, with acks=all."""
        produced = self.clients[at].send(ACKS_ALL, record_count)
        request = ProduceRequest(ACKS_ALL, _PRODUCE_MS, [ProducePartition(at, produced.data)])
        broker.replicas.execute(broker.replicas.core.produce(request, produced, self.now_ms))

    def _produced(self, broker: MemoryBroker, produced: Produced, result: ProduceResult) -> None:
        if result.error is _NONE:
            at = result.topic_partition
            produced.base_offset = result.base_offset
            self.clients[at].acknowledged += 1
            log = broker.replicas[at].log
            self.checker.acknowledge(at, result.base_offset, log, produced.record_count)


def _uuid(first: int, second: int) -> str:
    """Return a UUID that no other pair of numbers has."""
    return f"{first:04d}{second:010d}aaaaaaaA"


def _verdict(proposal: IsrProposal, result: of_partitions.IsrResult) -> IsrVerdict:
    state = result.state
    if state is None:
        return IsrVerdict(proposal.topic_partition, result.error)
    return IsrVerdict(
        proposal.topic_partition,
        _NONE,
        state.leader,
        state.leader_epoch,
        state.isr,
        state.partition_epoch,
        state.recovering,
    )
