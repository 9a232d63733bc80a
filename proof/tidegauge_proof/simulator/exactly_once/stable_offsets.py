"""Stable offsets (KIP-447): a group coordinator gives them out when its broker is proven to lead, as ``GroupService``.

The proof is the product's own (``LeadershipProof``). Its read of ZooKeeper is a message, so that the cluster goes on
meanwhile; it is lost at times, and always where the broker has no session. Between two looks at the followers the
timers of the cluster run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tidegauge.cluster_metadata import Leadership, MetadataUnavailable
from tidegauge.errors import ErrorCode
from tidegauge.groups import OffsetFetchResult
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.coordinators.leadership_proof import LeadershipProof
from tidegauge_proof.simulator.exactly_once.driving import Awaited, drive
from tidegauge_proof.simulator.exactly_once.network import Message
from tidegauge_proof.simulator.memory_broker import MemoryBroker

if TYPE_CHECKING:
    from tidegauge_proof.simulator.exactly_once.cluster import Cluster

_FETCH_WAIT_MS = 500


@dataclass(slots=True, eq=False)
class _Look:
    """A proof that waits for its next look at the followers."""

    broker: MemoryBroker
    incarnation: int
    go_on: Callable[[Any], None]


class StableOffsets:
    """The proofs that are in progress."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._looks: list[_Look] = []

    def give_out(
        self, broker: MemoryBroker, at: TopicPartition, result: OffsetFetchResult, respond: Callable[[Any], None]
    ) -> None:
        """Respond with a result of a broker's coordinator, when the broker is proven to lead its partition.

        Args:
            broker: whose coordinator has the offsets.
            at: the coordinator's partition.
            result: the offsets.
            respond: takes what the client gets.
        """
        world = self._cluster.world
        proof = LeadershipProof(
            broker.broker_id,
            broker.core,
            partial(self._read_state, broker),
            lambda: world.now_ms,
            lambda: _FETCH_WAIT_MS,
            partial(self._pause, broker),
            nullcontext,
            lambda work: work,
        )

        def respond_if(is_proven: bool) -> None:
            respond(result if is_proven else OffsetFetchResult(ErrorCode.NOT_COORDINATOR))

        drive(proof.holds(at), respond_if)

    def look_again(self) -> bool:
        """Let the proofs of running brokers look at the followers; return whether one has come to its end."""
        looks, self._looks = self._looks, []
        for look in looks:
            if look.broker.broker_id in self._cluster.world.paused:
                self._looks.append(look)
            elif look.broker.is_running and look.broker.incarnation == look.incarnation:
                look.go_on(None)
        return len(self._looks) < len(looks)

    async def _read_state(self, broker: MemoryBroker, at: TopicPartition) -> Leadership:
        state: Leadership | None = await Awaited(partial(self._read, broker, at))
        if state is None:
            raise MetadataUnavailable("no response")
        return state

    def _read(self, broker: MemoryBroker, at: TopicPartition, responded: Callable[[Any], None]) -> None:
        cluster = self._cluster

        def end(state: Leadership | None) -> None:
            responded(state)
            cluster.settle()

        internal = cluster.internal(f"read of the state of {at} by {broker.broker_id}", broker, end)

        def arrive() -> None:
            is_lost = broker.broker_id in cluster.world.without_session
            internal.finish(None if is_lost else cluster.world.store.leadership(at))

        cluster.network.send(
            Message("", internal.words, arrive, lambda: not internal.is_over, lambda: internal.finish(None))
        )

    async def _pause(self, broker: MemoryBroker) -> None:
        await Awaited(lambda go_on: self._looks.append(_Look(broker, broker.incarnation, go_on)))
