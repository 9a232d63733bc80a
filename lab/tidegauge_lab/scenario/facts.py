"""Facts about one partition at one moment: the cluster's view, each replica's own view, and the files. Pure.

``LEO/HW``, ``*`` for the leader, is how a state is written in one line: ``1: 2/1*  2: 1/1   ISR 1,2  epoch 0``. Where
an open transaction keeps the last stable offset below the high watermark, it follows: ``3/3/1*``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidegauge.v1 import metadata_pb2
from tidegauge_lab.scenario.readers import NO_LEADER, LoggedRecord

LEADER = "leader"


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica as its broker reports it.

    Attributes:
        role: ``leader``, ``follower`` or ``offline``.
        leader_epoch: in which it is; -1 before its first LeaderAndIsr.
        leo: log end offset.
        hw: what it believes to be committed.
        epochs: its epoch cache.
        remote_leos: at a leader the known ends of the others; -1 if unknown.
        last_stable_offset: which read_committed does not pass; None if not reported.
    """

    role: str
    leader_epoch: int
    leo: int
    hw: int
    epochs: tuple[tuple[int, int], ...] = ()
    remote_leos: Mapping[int, int] = field(default_factory=dict)
    last_stable_offset: int | None = None

    @property
    def lso(self) -> int:
        """Last stable offset."""
        return self.hw if self.last_stable_offset is None else self.last_stable_offset


@dataclass(frozen=True, slots=True)
class Facts:
    """One partition.

    Attributes:
        leader: as the cluster sees it; NO_LEADER for none.
        epoch: its leader epoch; -1 while no broker could be asked.
        isr: in stored order.
        replicas: of the brokers that respond.
        logs: the records in the files of each assigned broker, whether it lives or not.
        assigned: brokers with a replica, in assignment order.
    """

    leader: int
    epoch: int
    isr: tuple[int, ...]
    replicas: Mapping[int, Replica]
    logs: Mapping[int, Sequence[LoggedRecord]]
    assigned: tuple[int, ...]

    @property
    def is_led(self) -> bool:
        """Whether the leader that the cluster sees responds and says itself that it leads in this epoch."""
        replica = self.replicas.get(self.leader)
        return replica is not None and (replica.role, replica.leader_epoch) == (LEADER, self.epoch)

    @property
    def line(self) -> str:
        """All of it but the logs, in one line."""
        parts = [f"{broker}: {self._one(broker)}" for broker in self.assigned]
        return "  ".join(parts) + f"   ISR {numbers(self.isr)}  epoch {self.epoch}  leader {leader_name(self.leader)}"

    def _one(self, broker: int) -> str:
        replica = self.replicas.get(broker)
        if replica is None:
            return "-"
        if replica.role not in {LEADER, "follower"}:
            return replica.role
        stable = f"/{replica.lso}" if replica.lso < replica.hw else ""
        return f"{replica.leo}/{replica.hw}{stable}" + ("*" if replica.role == LEADER else "")

    @property
    def log_lines(self) -> list[str]:
        """The records of each replica, a line each."""
        return [f"{broker}: {records(self.logs.get(broker, ()))}" for broker in self.assigned]


def replica_of(said: metadata_pb2.ReplicaDescription) -> Replica:
    """Return a replica as its broker describes it."""
    return Replica(
        role=said.role,
        leader_epoch=said.leader_epoch if said.HasField("leader_epoch") else -1,
        leo=said.log_end_offset,
        hw=said.high_watermark,
        epochs=tuple((entry.leader_epoch, entry.start_offset) for entry in said.epochs),
        remote_leos={
            remote.broker_id: remote.log_end_offset if remote.HasField("log_end_offset") else -1
            for remote in said.remote_replicas
        },
        last_stable_offset=said.last_stable_offset if said.HasField("last_stable_offset") else None,
    )


def numbers(ids: Sequence[int]) -> str:
    """``1,2``."""
    return ",".join(str(one) for one in ids) or "-"


def brokers(ids: Sequence[int]) -> str:
    """``broker 1``, ``brokers 1,2``."""
    return f"{'broker' if len(ids) == 1 else 'brokers'} {numbers(ids)}"


def leader_name(leader: int) -> str:
    """Return a broker id, or ``none``."""
    return "none" if leader == NO_LEADER else str(leader)


def records(found: Sequence[LoggedRecord]) -> str:
    """``m1@0, m2@1``."""
    return "[" + ", ".join(str(one) for one in found) + "]"


def epochs(found: Sequence[tuple[int, int]]) -> str:
    """As ``[Epoch=1, Offset=2]``; ``none`` for an empty cache."""
    return " ".join(f"[Epoch={epoch}, Offset={offset}]" for epoch, offset in found) or "none"
