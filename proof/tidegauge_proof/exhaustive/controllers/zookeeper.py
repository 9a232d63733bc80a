"""The controller of the exploration: its real decisions, one event at a time, and the LeaderAndIsr that come of them.

Two of them. ``ModelController`` may elect any member of the ISR and drop any member whenever it likes, as the published
models let it: the election is Kafka's preferred one in an assignment that begins with that member, dropping is what
follows a broker's failure, a leader's proposal is judged by AlterPartition's own checks. ``KafkaController`` is a whole
term of the simulator's: it sees brokers come, go and bounce, and elects as Kafka does. Each decision runs to its end;
controllers that die in between are the random search's.

Events: ``("elect", leader)``, ``("drop", broker)``; ``("register", broker, life)``, ``("unregister", broker)``,
``("look",)`` at the brokers' znodes, ``("rebalance",)``; both: ``("alter", broker, life, proposal)``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidegauge.cluster_metadata import Assignment, Leadership
from tidegauge.control import (
    NO_LEADER,
    AlterPartitionRequest,
    AlterPartitionResponse,
    Endpoint,
    LeaderAndIsrRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge_broker.replica.snapshot import ProposalSnapshot
from tidegauge_controller.rules.alter_partition import check_proposal
from tidegauge_controller.rules.election import Choose, elect_preferred, remove_from_isr
from tidegauge_controller.zookeeper.decisions import alter_partition
from tidegauge_controller.zookeeper.decisions.context import ControllerContext, LiveBroker
from tidegauge_controller.zookeeper.decisions.leaders import rebalance_leaders
from tidegauge_controller.zookeeper.decisions.topic_events import process_topic_change
from tidegauge_proof.exhaustive.broker_machine import proposal_from
from tidegauge_proof.exhaustive.frozen import ControllerState, Letter, Verdict
from tidegauge_proof.simulator.controllers.zookeeper.memory_zookeeper import MemoryZooKeeper
from tidegauge_proof.simulator.controllers.zookeeper.sim_controller import SimController
from tidegauge_proof.simulator.driven import TOPIC_ID
from tidegauge_proof.simulator.memory_broker import AT

Event = tuple[Any, ...]
Outcome = tuple[Verdict | None, tuple[Letter, ...]]
"""The result of an event: the response to a proposal, and the brokers that are to lead and to follow."""


class ModelController:
    """The controller of the models: one cell, changed at will within Kafka's rules."""

    def __init__(self, replicas: tuple[int, ...]) -> None:
        self.replicas = replicas
        self._context = ControllerContext(0, epoch=1, topic_ids={AT.topic: TOPIC_ID})
        self._context.live = {broker: LiveBroker(Endpoint(broker, "localhost", 9092), 1) for broker in replicas}
        self._context.set_assignment(AT, Assignment(replicas))
        self._context.leadership[AT] = Leadership(
            NO_LEADER, -1, replicas, recovering=False, partition_epoch=0, controller_epoch=1
        )

    @classmethod
    def thaw(cls, replicas: tuple[int, ...], state: ControllerState) -> ModelController:
        """Return a controller in this state."""
        machine = cls(replicas)
        machine._context.leadership[AT] = Leadership(
            state.leader,
            state.leader_epoch,
            state.isr,
            recovering=False,
            partition_epoch=state.partition_epoch,
            controller_epoch=1,
        )
        return machine

    def freeze(self) -> ControllerState:
        """Return what it knows."""
        now = self._context.leadership[AT]
        lives = tuple(1 for _ in self.replicas)
        return ControllerState(now.leader, now.leader_epoch, tuple(sorted(now.isr)), now.partition_epoch, lives, lives)

    def handle(self, event: Event) -> Outcome:
        """One event."""
        current = self._context.leadership[AT]
        match event:
            case ("elect", leader):
                others = (broker for broker in self.replicas if broker != leader)
                self._context.set_assignment(AT, Assignment((leader, *others)))
                elected = elect_preferred(self._context, AT, current).leadership
                return (None, ()) if elected is None else (None, self._decide(elected))
            case ("drop", broker):
                return None, self._decide(remove_from_isr(current, broker, 1))
            case ("alter", broker, _, proposal):
                return self._alter(broker, proposal), ()
        raise ValueError(event)

    def _decide(self, state: Leadership) -> tuple[Letter, ...]:
        written = replace(state, partition_epoch=self._context.leadership[AT].partition_epoch + 1)
        self._context.leadership[AT] = written
        if written.leader == NO_LEADER:
            return ()  # to a broker that is news of nothing: it stays as it was
        isr = tuple(sorted(written.isr))
        return tuple(
            Letter(broker, 1, written.leader, written.leader_epoch, isr, written.partition_epoch)
            for broker in self.replicas
        )

    def _alter(self, broker: int, proposal: ProposalSnapshot) -> Verdict:
        error, state = check_proposal(self._context, broker, proposal_from(proposal, TOPIC_ID))
        if error is not ErrorCode.NONE:
            return Verdict(error.name, NO_LEADER, -1, (), -1)
        if state is not None:
            self._context.leadership[AT] = replace(state, partition_epoch=state.partition_epoch + 1)
        now = self._context.leadership[AT]
        return Verdict(error.name, now.leader, now.leader_epoch, tuple(sorted(now.isr)), now.partition_epoch)


class _Tree(MemoryZooKeeper):
    """ZooKeeper whose brokers' epochs are the numbers of their lives, and not of transactions."""

    def register(self, broker_id: int, incarnation: int) -> None:
        """Register a new session of the broker."""
        self.register_broker(broker_id)
        self.nodes[f"/brokers/ids/{broker_id}"].czxid = incarnation


class KafkaController:
    """One term of a controller on a broker that holds no replica and never fails.

    It can't be set to a state; it is brought there by its events, from the beginning (``events``).
    """

    def __init__(self, replicas: tuple[int, ...], *, unclean: bool, election: Choose | None = None) -> None:
        self.replicas = replicas
        self._tree = _Tree()
        for broker in replicas:
            self._tree.register(broker, 1)
        self._term = SimController(self._tree, 0, 1)
        self._term.context.settings = replace(self._term.context.settings, tried_election=election)
        self._run()
        self._tree.add_topic(AT.topic, {0: replicas}, {"unclean.leader.election.enable": "true"} if unclean else {})
        self._topic_id = f"{AT.topic:A<22}"[:22]
        self._term.add(process_topic_change)
        self.first_letters = self._run()
        self.events: tuple[Event, ...] = ()

    def freeze(self) -> ControllerState:
        """Return what it knows, and who is registered."""
        now = self._tree.state(AT)
        known = self._term.context.live
        return ControllerState(
            now.leader,
            now.leader_epoch,
            tuple(sorted(now.isr)),
            self._tree.version(AT),
            tuple(self._incarnation(broker) for broker in self.replicas),
            tuple(known[broker].epoch if broker in known else 0 for broker in self.replicas),
        )

    def _incarnation(self, broker: int) -> int:
        node = self._tree.nodes.get(f"/brokers/ids/{broker}")
        return 0 if node is None else node.czxid

    def handle(self, event: Event) -> Outcome:
        """One event."""
        self.events = (*self.events, event)
        verdict: list[Verdict | None] = [None]
        match event:
            case ("register", broker, incarnation):
                self._tree.register(broker, incarnation)
            case ("unregister", broker):
                self._tree.unregister_broker(broker)
            case ("look",):
                self._term.brokers_changed = True
            case ("rebalance",):
                self._term.add(rebalance_leaders)
            case ("alter", broker, incarnation, proposal):
                request = self._request(broker, incarnation, proposal)

                def done(response: AlterPartitionResponse | None) -> None:
                    verdict[0] = _verdict_of(response)

                self._term.add(lambda context: alter_partition.process_alter_partition(context, request), done)
            case _:
                raise ValueError(event)
        letters = self._run()
        return verdict[0], letters

    def _request(self, broker: int, incarnation: int, proposal: ProposalSnapshot) -> AlterPartitionRequest:
        return AlterPartitionRequest(broker, incarnation, [proposal_from(proposal, self._topic_id)])

    def _run(self) -> tuple[Letter, ...]:
        """Make all pending decisions; return the letters to brokers of the partition."""
        while self._term.is_busy:
            assert self._term.advance(1000, has_session=True)
        letters: list[Letter] = []
        for broker, queue in sorted(self._term.queues.items()):
            letters += (_letter(broker, message) for message in queue if isinstance(message, LeaderAndIsrRequest))
            queue.clear()
        return tuple(letter for letter in letters if letter.leader != NO_LEADER)


def _letter(broker: int, request: LeaderAndIsrRequest) -> Letter:
    (item,) = request.partitions
    state = item.state
    isr = tuple(sorted(state.isr))
    return Letter(broker, request.header.broker_epoch, state.leader, state.leader_epoch, isr, state.partition_epoch)


def _verdict_of(response: AlterPartitionResponse | None) -> Verdict | None:
    """None: an error of the whole request, after which a broker asks again."""
    if response is None or response.error is not ErrorCode.NONE:
        return None
    (one,) = response.partitions
    if one.error is not ErrorCode.NONE:
        return Verdict(one.error.name, NO_LEADER, -1, (), -1)
    return Verdict(one.error.name, one.leader, one.leader_epoch, tuple(sorted(one.isr)), one.partition_epoch)
