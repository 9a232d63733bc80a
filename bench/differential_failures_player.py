"""Plays a scenario on either cluster, by the same means on both.

Rules:
    1. A produce is one batch in one request to one broker; where the leader has moved, it is sent again, unless the
       step names the broker.
    2. A step returns when its effect is true. At an ``expect`` the cluster is first given time to become what the file
       expects, then to come to rest; the facts seen then are kept. Differences from the file are kept too, and do not
       end the run.
    3. Waits, and the steps of groups and transactions, are played by the scenario's own players; clients are real ones
       in processes of their own.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import singledispatchmethod
from typing import Any, cast

from differential_failures_clients import KafkaConnections, Unrecorded, values_of
from differential_failures_look import ANY_REPLICA, Eyes
from differential_failures_rules import LEFT_OUT, Fields, fields_of
from differential_failures_sides import LIMIT_SECONDS, Side
from kazoo.exceptions import NoNodeError
from tests.waiting import until
from tests.wire_responses.batches import batch
from tests.wire_responses.probe import message
from tests.wire_responses.records import produce, produced

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_lab.local.waiting import holds_within
from tidegauge_lab.scenario import Scenario, broker_steps, checks, fault_steps, state_steps, wait_steps
from tidegauge_lab.scenario.cluster_connections import ACKNOWLEDGED, NO_RESPONSE, UNKNOWN
from tidegauge_lab.scenario.consumers import Consumers
from tidegauge_lab.scenario.facts import Facts
from tidegauge_lab.scenario.group_player import GroupPlayer
from tidegauge_lab.scenario.group_steps import GROUP_STEPS, ExpectGroup
from tidegauge_lab.scenario.outcome import StepFailed, described
from tidegauge_lab.scenario.producers import Producers
from tidegauge_lab.scenario.readers import NO_LEADER
from tidegauge_lab.scenario.step_base import PartitionStep, Step
from tidegauge_lab.scenario.transaction_player import TransactionPlayer
from tidegauge_lab.scenario.transaction_steps import (
    LIBRARIES,
    TRANSACTION_STEPS,
    CommitTransaction,
    ExpectTransaction,
    StartProducer,
    WaitTransaction,
)
from tidegauge_lab.scenario.wait_player import WaitPlayer
from tidegauge_lab.scenario.wait_steps import WAIT_STEPS

SETTLE_SECONDS = 20.0
"""How long an expectation may take to become true."""
REST_LOOKS, REST_SECONDS = 3, 0.4
"""A cluster is at rest when this number of looks in a row, at this distance, were the same."""
PRODUCE_MS = 60_000
PRODUCE_VERSION, CREATE_TOPICS_VERSION, ELECT_LEADERS_VERSION = 7, 5, 2
SILENT = (OSError, TidegaugeError, NoNodeError)
"""Raised by looks at brokers that can't be asked now."""
MOVING = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name})


class Player:
    """Plays one scenario on one cluster.

    Args:
        scenario: the scenario to play.
        side: where; its brokers run.
        eyes: look at it.
        say: takes a line for each step.
    """

    def __init__(self, scenario: Scenario, side: Side, eyes: Eyes, say: Callable[[str], None]) -> None:
        self.moments: dict[str, Fields] = {}
        self.unlike_the_file: list[str] = []
        self._scenario, self._side, self._eyes, self._say = scenario, side, eyes, say
        self._assigned: dict[TopicPartition, Sequence[int]] = {}
        self._responses: dict[str, Future[str]] = {}
        self._pool = ThreadPoolExecutor(8, "produce")
        self.moment = ""
        self._connections = KafkaConnections(eyes, side.cluster)
        servers = ",".join(side.cluster.kafka_bootstrap_servers)
        directory = side.cluster.directory.with_name(f"{side.cluster.directory.name}-clients")
        directory.mkdir()
        consumers = Consumers(lambda: servers, directory)
        of_all: Any = self._connections  # the part of the scenario player's connections that these use
        self._groups = GroupPlayer(consumers, of_all, self._wait_until_none, scenario.first_partition.topic)
        self._transactions = TransactionPlayer(
            Producers(lambda _: servers, directory),
            consumers,
            cast("Any", Unrecorded()),
            of_all,
            self._wait_until_none,
            self._connections.readable,
            scenario.partition_of,
        )
        waits = WaitPlayer(
            side.cluster, of_all, self._look, scenario.partition_of, self._wait_until_none, lambda ids: [*map(int, ids)]
        )
        parts: tuple[tuple[Sequence[type[Step]], Callable[[Any], None]], ...] = (
            (WAIT_STEPS, waits.do),
            (GROUP_STEPS, self._groups.do),
            (TRANSACTION_STEPS, self._transactions.do),
        )
        self._players = {step: do for steps, do in parts for step in steps}

    def play(self) -> None:
        """Create the topics and play all steps.

        Raises:
            AssertionError: what a step waits for did not become true.
        """
        for topic in self._scenario.topics:
            self._create(topic.name, topic.assignment, topic.config)
        self._wait_controller([self._scenario.controller], None)
        for step in self._scenario.steps:
            if step.verb in LEFT_OUT:
                continue
            shown = step.verb if isinstance(step, state_steps.Expect) else described(step)
            self.moment = f"{self._scenario.name}, line {step.line}, {shown}"
            self._say(self.moment)
            self._do(step)

    def close(self) -> None:
        """End all clients, and wait for no produce any more."""
        self._groups.close()
        self._transactions.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _keep(self, fields: Fields) -> None:
        self.moments[self.moment] = self.moments.get(self.moment, {}) | fields

    def _wait(self, holds: Callable[[], Any]) -> Any:
        return until(lambda: _unless_silent(holds), LIMIT_SECONDS, f"{self._side.name}: {self.moment}")

    def _wait_until_none(self, problems: Callable[[], Sequence[str]], limit_seconds: float | None = None) -> None:
        """Wait until there are no problems; StepFailed with the last ones if there are some for too long."""
        last: list[str] = []

        def none_left() -> bool:
            with suppress(*SILENT):
                last[:] = problems()
                return not last
            return False

        if not holds_within(none_left, limit_seconds or LIMIT_SECONDS, pause_seconds=REST_SECONDS):
            raise StepFailed("; ".join(last))

    def _at(self, step: PartitionStep) -> TopicPartition:
        return self._scenario.partition_of(step)

    def _look(self, at: TopicPartition) -> Facts:
        return self._eyes.look(at, self._assigned[at])

    def _states(self) -> dict[str, str]:
        return {value: one.result() if one.done() else NO_RESPONSE for value, one in self._responses.items()}

    def _wait_controller(self, brokers: Sequence[int], epoch: int | None) -> None:
        """Wait until every broker that responds names the same controller, one of these."""

        def agreed() -> bool:
            named, found = self._eyes.controller()
            seen = {self._eyes.metadata(one).controller_id for one in self._eyes.responding}
            return named in brokers and seen == {named} and found == (epoch or found)

        self._wait(agreed)

    def _ask_controller(self, version: int, request: Any) -> Any:
        """Send a request to the controller, once there is one that responds."""
        found: list[Any] = []

        def asked() -> bool:
            controller, _ = self._eyes.controller()
            if controller is None:
                return False
            found[:] = [self._eyes.ask(controller, version, request, LIMIT_SECONDS)]
            return True

        self._wait(asked)
        return found[0]

    def _create(self, name: str, assignment: Sequence[Sequence[int]], config: Mapping[str, str]) -> None:
        self.moment = f"{self._scenario.name}, topic {name}"
        wanted = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": at, "broker_ids": list(ids)} for at, ids in enumerate(assignment)],
            "configs": [{"name": key, "value": value} for key, value in config.items()],
        }
        request = message("CreateTopics", timeout_ms=30_000, topics=[wanted])
        [created] = self._ask_controller(CREATE_TOPICS_VERSION, request).topics
        assert created.error_code == 0, f"{name} is not created: {created}"
        for number, replicas in enumerate(assignment):
            at = TopicPartition(name, number)
            self._assigned[at] = replicas
            self._wait(lambda at=at: self._is_led(at))

    def _is_led(self, at: TopicPartition) -> bool:
        leader, epoch, _ = self._eyes.state(at)
        return leader >= 0 and self._is_in(at, leader, epoch, replica=-1)

    def _is_in(self, at: TopicPartition, broker_id: int, epoch: int, replica: int = ANY_REPLICA) -> bool:
        """Whether a replica is in a leader epoch; with replica -1 whether it leads in it."""
        if not self._side.responds(broker_id):
            return False
        error, _ = self._eyes.offset(broker_id, at, epoch=epoch, replica=replica)
        return error in {ErrorCode.NONE, ErrorCode.OFFSET_NOT_AVAILABLE}

    # The steps

    @singledispatchmethod
    def _do(self, step: Step) -> None:
        """Let the scenario's own player of the step's family do it, and keep what the cluster says then."""
        assert type(step) in self._players, f"{step.verb} is not played"
        self._players[type(step)](step)
        if isinstance(step, ExpectGroup):
            self._keep(self._at_rest(lambda: self._connections.fields_of_group(step.group)))
        elif isinstance(step, ExpectTransaction | WaitTransaction):
            self._keep(self._at_rest(lambda: self._connections.fields_of_transaction(step.transactional_id)))

    @_do.register
    def _start_producer(self, step: StartProducer) -> None:
        """Start a producer of Kafka's: Tidegauge's own asks brokers for metadata over gRPC."""
        self._transactions.do(dataclasses.replace(step, library=LIBRARIES[0]))

    @_do.register
    def _commit(self, step: CommitTransaction) -> None:
        """Commit; librdkafka has an error of its own for a producer that was fenced."""
        is_fenced = step.error == ErrorCode.PRODUCER_FENCED.name
        self._transactions.do(dataclasses.replace(step, error="_FENCED") if is_fenced else step)

    @_do.register
    def _create_topic(self, step: broker_steps.CreateTopic) -> None:
        self._create(step.name, step.assignment, step.config or {})

    @_do.register
    def _produce(self, step: broker_steps.Produce) -> None:
        at = self._at(step)
        for value in step.values:
            if step.answer == "later":
                self._produce_later(step, at, value)
                continue
            future = self._responses[value] = self._pool.submit(self._sent, step, at, value)
            self._keep({f"response to {value}": future.result(LIMIT_SECONDS)})

    def _produce_later(self, step: broker_steps.Produce, at: TopicPartition, value: str) -> None:
        """Send, and go on once the broker has appended it, or has responded already."""
        target = self._eyes.state(at)[0] if step.via is None else step.via
        _, before = self._eyes.offset(target, at)
        future = self._responses[value] = self._pool.submit(self._sent, step, at, value)
        self._wait(lambda: future.done() or self._eyes.offset(target, at)[1] > before)

    def _sent(self, step: broker_steps.Produce, at: TopicPartition, value: str) -> str:
        """Send one record until the response is not that the leader has moved; return the response."""
        end = time.monotonic() + LIMIT_SECONDS
        while True:
            target = self._eyes.state(at)[0] if step.via is None else step.via
            state = self._sent_once(step, at, value, target)
            passes = state in MOVING - {step.error.name} or target == NO_LEADER
            if step.via is not None or not passes or time.monotonic() > end:
                return state
            time.sleep(REST_SECONDS)

    def _sent_once(self, step: broker_steps.Produce, at: TopicPartition, value: str, target: int) -> str:
        if target == NO_LEADER:
            return ErrorCode.LEADER_NOT_AVAILABLE.name
        records = batch((value.encode(),), timestamp_ms=time.time_ns() // 1_000_000)
        request = produce(records, topic=at.topic, partition=at.partition, acks=step.acks)
        request.timeout_ms = PRODUCE_MS
        try:
            [found] = produced(self._eyes.ask(target, PRODUCE_VERSION, request, LIMIT_SECONDS))
        except OSError:
            return UNKNOWN
        code = ErrorCode(found.error_code)
        return ACKNOWLEDGED if code is ErrorCode.NONE else code.name

    @_do.register
    def _wait_response(self, step: broker_steps.WaitResponse) -> None:
        for value in step.values:
            self._keep({f"response to {value}": self._responses[value].result(LIMIT_SECONDS)})

    @_do.register
    def _process(self, step: broker_steps.ProcessStep) -> None:
        act = getattr(self._side, step.verb)
        for broker_id in step.brokers:
            assert isinstance(broker_id, int), "shipped scenarios that are played name their brokers"
            outcome = act(broker_id)
            if isinstance(step, broker_steps.Start):
                self._keep({f"start of broker {broker_id}": outcome})
            if isinstance(step, broker_steps.Start | broker_steps.Resume):
                self._wait(lambda broker_id=broker_id: self._is_in_the_picture(broker_id))

    def _is_in_the_picture(self, broker_id: int) -> bool:
        """Whether a broker is registered, and its metadata has every broker that is, and the topics."""
        registered = self._eyes.registered()
        found = self._eyes.metadata(broker_id, [topic.name for topic in self._scenario.topics])
        known = sorted(one.node_id for one in found.brokers)
        return broker_id in registered and known == registered and all(one.error_code == 0 for one in found.topics)

    @_do.register
    def _isolate(self, step: fault_steps.FaultStep) -> None:
        self._side.isolate(step.broker, step.fault)

    @_do.register
    def _heal(self, step: broker_steps.Heal) -> None:
        for broker_id in step.brokers:
            self._side.heal(broker_id)

    @_do.register
    def _elect(self, step: broker_steps.Elect) -> None:
        at = self._at(step)
        request = message(
            "ElectLeaders",
            election_type=int(step.type == "unclean"),
            topic_partitions=[{"topic": at.topic, "partitions": [at.partition]}],
            timeout_ms=30_000,
        )
        response = self._ask_controller(ELECT_LEADERS_VERSION, request)
        [found] = [one for topic in response.replica_election_results for one in topic.partition_result]
        code = ErrorCode(found.error_code)
        self._keep({"election": code.name, "election's message": found.error_message or ""})
        if code is not step.error:
            self.unlike_the_file.append(f"{self.moment}: the election ended with {code.name}, not {step.error.name}")

    @_do.register
    def _sync(self, step: broker_steps.Sync) -> None:
        for broker_id in step.brokers:
            self._side.sync(broker_id, self._at(step))

    @_do.register
    def _drop_unsynced(self, step: broker_steps.DropUnsynced) -> None:
        for broker_id in step.brokers:
            self._side.drop_unsynced(broker_id)

    @_do.register
    def _wait_controller_step(self, step: wait_steps.WaitController) -> None:
        self._wait_controller(step.brokers, step.epoch)
        named, epoch = self._eyes.controller()
        self._keep({"controller is expected": str(named in step.brokers), "controller epoch": str(epoch)})

    @_do.register
    def _expect(self, step: state_steps.Expect) -> None:
        at = self._at(step)
        end = time.monotonic() + SETTLE_SECONDS
        while (problems := self._problems(step, at)) and time.monotonic() < end:
            time.sleep(REST_SECONDS)
        self.unlike_the_file += [f"{self.moment}: {problem}" for problem in problems]
        self._keep(self._at_rest(lambda: self._fields(at)))

    def _problems(self, step: state_steps.Expect, at: TopicPartition) -> list[str]:
        facts = self._look(at)
        return checks.differences(step, facts, self._states(), lambda: self._readable(facts, at) or [])

    def _readable(self, facts: Facts, at: TopicPartition) -> list[str] | None:
        return values_of(self._eyes.fetched(facts.leader, at)) if facts.leader in facts.replicas else None

    def _around(self, at: TopicPartition) -> Fields:
        """Return what the cluster says of a partition beside its state and replicas."""
        named = {f"metadata of broker {one}": self._eyes.in_metadata(one, at) for one in self._eyes.responding}
        return {
            "partition epoch": str(self._eyes.partition_epoch(at)),
            "controller epoch": str(self._eyes.controller()[1]),
        } | named

    def _fields(self, at: TopicPartition) -> Fields:
        """Return all that is compared of a partition now."""
        facts = self._look(at)
        return fields_of(facts, self._states(), self._readable(facts, at)) | self._around(at)

    def _at_rest(self, look: Callable[[], Fields]) -> Fields:
        """Return the fields once they stay the same."""
        seen: list[Fields] = []

        def is_at_rest() -> bool:
            now = look()
            if seen and seen[-1] != now:
                seen.clear()
            seen.append(now)
            time.sleep(0 if len(seen) > REST_LOOKS else REST_SECONDS)
            return len(seen) > REST_LOOKS

        self._wait(is_at_rest)
        return seen[-1]


def _unless_silent(holds: Callable[[], Any]) -> Any:
    """Return whether it holds; a broker that can't be asked now is no."""
    with suppress(*SILENT):
        return holds()
    return False
