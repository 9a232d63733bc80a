"""Finds the invariants that a state breaks: the published models', and with Kafka's controller more.

The first eight are ``tidegauge replay``'s (model_invariants.py). With crashes a leader takes its high watermark
along, so the explored state remembers all records ever committed:

| name | statement |
|---|---|
| CommittedInIsr | every member of the controller's ISR holds all that was ever committed, be its process alive or not |
| CommittedForEver | no replica has another record below its high watermark than the one committed there first |
| IsrNotEmpty | the controller's ISR has a member |
"""

from __future__ import annotations

from tidegauge.control import NO_LEADER
from tidegauge_proof.exhaustive.cluster import ClusterState
from tidegauge_proof.exhaustive.frozen import BrokerState, Cell, ControllerState
from tidegauge_proof.simulator.model_invariants import ClusterImage, Record, ReplicaImage


class Judge:
    """Judges states; what looks the same is judged once."""

    def __init__(self) -> None:
        self._views: dict[tuple[object, ...], int] = {}
        self._known: dict[tuple[object, ...], tuple[str, ...]] = {}

    def broken(self, state: ClusterState) -> tuple[str, ...]:
        """Return the names of the invariants that do not hold."""
        now: ControllerState = state.controller.value
        key = (*map(self._view, state.brokers), now.leader, now.isr, state.committed)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _judge(state)
        return known

    def _view(self, cell: Cell) -> int:
        if cell.view is None:
            value: BrokerState = cell.value
            image = image_of(0, value)
            seen = (
                value.records,
                image.high_watermark,
                image.leader_epoch,
                image.isr,
                image.leader,
                image.reconciled,
            )
            cell.view = self._views.setdefault(seen, len(self._views))
        number: int = cell.view
        return number


def image_of(broker: int, state: BrokerState) -> ReplicaImage:
    """Return what the invariants see of a broker."""
    records = tuple(Record(epoch, number) for epoch, number in state.records)
    replica = state.replica
    if replica is None:
        return ReplicaImage(broker, records, min(state.checkpoint, len(records)))
    leads, follows = replica.leads, replica.follows
    return ReplicaImage(
        broker,
        records,
        replica.high_watermark,
        replica.leader_epoch,
        None if leads is None else leads.isr,
        None if follows is None else follows.leader,
        follows is not None and follows.reconciled,
    )


def _judge(state: ClusterState) -> tuple[str, ...]:
    now: ControllerState = state.controller.value
    replicas = {broker: image_of(broker, cell.value) for broker, cell in enumerate(state.brokers, 1)}
    image = ClusterImage(replicas, None if now.leader == NO_LEADER else now.leader, now.isr)
    broken = list(image.broken()) if now.isr else [*image.broken(), "IsrNotEmpty"]
    committed = state.committed.value
    if committed:
        if any(state.brokers[broker - 1].value.records[: len(committed)] != committed for broker in now.isr):
            broken.append("CommittedInIsr")
        for cell in state.brokers:
            own: BrokerState = cell.value
            high_watermark = own.checkpoint if own.replica is None else own.replica.high_watermark
            if own.records[:high_watermark] != committed[:high_watermark]:
                broken.append("CommittedForEver")
                break
    return tuple(broken)
