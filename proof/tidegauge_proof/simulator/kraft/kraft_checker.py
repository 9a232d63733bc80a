"""The invariants of a whole cluster in KRaft mode; the quorum's own are ``quorum_checker``'s.

C1  Images at one offset are equal, however their records were grouped (B1).
C2  An active controller without pending records has the committed image in memory.
C3  Nothing is responded to before it is committed.
C4  At most one controller is active in an epoch of the quorum.
C5  Leader epochs and partition epochs never fall; a leader that changes has a new leader epoch.
C6  ISR and ELR are disjoint sets of replicas. The leader is in the ISR; a partition without leader has an empty ISR
    (one member without eligible leader replicas); an ISR of min.insync.replicas has no ELR beside it.
C7  Brokers that are fenced, or shut down, lead nothing and are in no ISR of more than themselves.
C8  Broker epochs are unique and rise; one epoch has one incarnation.
C9  The last known leader is one, and only while there is none; it alone is elected uncleanly, once there is no other
    candidate.
C10 Members of ISR and ELR have all acknowledged records, unless their power failed after they registered (KIP-966).
C11 While a leader has min.insync.replicas committed members in its ISR, its maximal ISR has all of the controller's ISR
    and ELR in the same leader epoch: the high watermark waits for everyone who may be elected (KIP-497, KIP-966).
B4  After an image is applied, the broker leads exactly the partitions that it leads in that image.
C12 Blocks of producer ids that brokers get have no id in common.
C13 A reassignment that ends has the replicas of a target that was asked for, and all that were added in the ISR; one
    that is cancelled has the former ones. No change of the replicas takes the last member out of an ISR.
K1  No acknowledged record is lost, unless an unclean election was recorded since.
K2  After the faults each partition has a leader and all replicas in its ISR, and takes records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from tidegauge.partition import TopicPartition
from tidegauge_controller.metadata.image import MetadataImage, PartitionRegistration, RegisteredBroker
from tidegauge_proof.simulator.checker import Violation
from tidegauge_proof.simulator.kraft.sim_broker import SimBroker
from tidegauge_proof.simulator.kraft.sim_controller import SimController
from tidegauge_proof.simulator.memory_log import MemoryLog, RecordName

MIN_ISR = 2


@dataclass(slots=True)
class KRaftChecker:
    """The history of a cluster so far.

    Attributes:
        brokers: by id.
        partitions: all of them.
        newest: the newest committed image.
        acknowledged: the records whose acknowledgements were sent, by partition and offset.
        lost: how many of them an unclean election took, which was recorded.
        targets: the replicas that were asked for, by partition.
        reassigned: how many reassignments have ended with a target.
        images: images by the offset that they end at.
        active: the controllers that were active, by epoch.
        incarnations: of the registrations, by broker and broker epoch.
    """

    brokers: Mapping[int, SimBroker]
    partitions: Collection[TopicPartition]
    newest: MetadataImage = field(default_factory=MetadataImage)
    acknowledged: dict[TopicPartition, dict[int, RecordName]] = field(default_factory=dict)
    lost: int = 0
    targets: dict[TopicPartition, set[tuple[int, ...]]] = field(default_factory=dict)
    reassigned: int = 0
    images: dict[int, MetadataImage] = field(default_factory=dict[int, MetadataImage])
    active: dict[int, int] = field(default_factory=dict[int, int])
    incarnations: dict[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])

    _blocks: dict[int, int] = field(default_factory=dict[int, int])
    _compared: dict[int, tuple[MetadataImage, MetadataImage]] = field(
        default_factory=dict[int, tuple[MetadataImage, MetadataImage]]
    )

    def __post_init__(self) -> None:
        self.acknowledged = {at: {} for at in self.partitions}
        self.targets = {at: set() for at in self.partitions}

    # Controllers

    def controller(self, node_id: int, controller: SimController, committed: MetadataImage) -> None:
        """Judge an active controller: its memory, its epoch, and what it has responded to."""
        if controller.premature is not None:
            raise Violation("C3", f"controller {node_id} responds before offset {controller.premature} is committed")
        active = controller.active
        if active is None:
            return
        known = self.active.setdefault(active.epoch, node_id)
        if known != node_id:
            raise Violation("C4", f"controllers {known} and {node_id} are active in epoch {active.epoch}")
        if active.last_pending_offset is not None:
            return
        image, other = self._compared.get(node_id, (None, None))
        if image is active.image and other is committed:
            return
        self._compared[node_id] = (active.image, committed)
        if active.image != committed:
            raise Violation("C2", f"controller {node_id} has another image in memory than was committed")

    # Images

    def loaded(self, image: MetadataImage) -> None:
        """Judge an image that a node has loaded; it was judged before if another node had it first (C1)."""
        known = self.images.get(image.provenance.offset)
        if known is not None:
            if known != image:
                raise Violation("C1", f"two images at offset {image.provenance.offset} differ")
            return
        self.images[image.provenance.offset] = image
        if image.provenance.offset > self.newest.provenance.offset:
            before, self.newest = self.newest, image
            self._judge(before, image)

    def _judge(self, before: MetadataImage, now: MetadataImage) -> None:
        for registered in now.brokers.values():
            self._registration(before.brokers.get(registered.broker_id), registered)
        for broker in self.brokers.values():
            self._leaders(broker)
        for topic, number, state in now.all_partitions():
            where = f"{topic.name}-{number} at offset {now.provenance.offset}"
            was = before.partition(topic.topic_id, number)
            if was != state:
                _check_epochs(where, was, state)
                _check_members(where, state, elr=now.elr_enabled)
                if was is not None:
                    self._replicas(where, TopicPartition(topic.name, number), was, state)
                if was is not None and _is_unclean(was, state):
                    _check_unclean(where, was, state)
                    self._unclean(TopicPartition(topic.name, number), state.leader)
                if now.elr_enabled:
                    self._complete(TopicPartition(topic.name, number), state)
            _check_alive(where, state, now)

    def _registration(self, was: RegisteredBroker | None, now: RegisteredBroker) -> None:
        if was is not None and now.epoch < was.epoch:
            raise Violation("C8", f"the epoch of broker {now.broker_id} falls from {was.epoch} to {now.epoch}")
        known = self.incarnations.setdefault((now.broker_id, now.epoch), now.incarnation_id)
        if known != now.incarnation_id:
            raise Violation("C8", f"two incarnations of broker {now.broker_id} have epoch {now.epoch}")

    def _replicas(self, where: str, at: TopicPartition, was: PartitionRegistration, now: PartitionRegistration) -> None:
        """Judge a change of the replicas (C13), if one record alone lies between both states.

        A batch may hold several: a target, another one in its place, by which a replica that was to be added counts as
        one of before, as in Kafka, and the end of that, by which the replicas are none that were asked for.
        """
        if now.partition_epoch != was.partition_epoch + 1:
            return
        before, after = set(was.replicas), set(now.replicas)
        ends = was.is_reassigning and not now.is_reassigning
        if before != after and was.isr and not now.isr:
            raise Violation("C13", f"{where}: the last member leaves the ISR with its replica: {was} becomes {now}")
        if not ends and not before - after:
            return
        if ends and after == before - set(was.adding) and not set(was.adding) & set(now.isr):
            return  # cancelled
        if now.replicas not in self.targets[at]:
            raise Violation("C13", f"{where}: replicas that were not asked for: {was} becomes {now}")
        if not set(was.adding) & after <= set(now.isr):
            raise Violation("C13", f"{where}: a replica was added that is not in the ISR: {was} becomes {now}")
        self.reassigned += 1

    def producer_ids(self, first: int, length: int) -> None:
        """Judge a block of producer ids that a broker has got (C12)."""
        for start, size in self._blocks.items():
            if first < start + size and start < first + length:
                raise Violation("C12", f"producer ids {first} to {first + length - 1} were given out before")
        self._blocks[first] = length

    # Records

    def acknowledge(self, at: TopicPartition, offset: int, log: MemoryLog, count: int) -> None:
        """Note records that a leader has acknowledged with acks=all."""
        names = log.records[offset : offset + count]
        self.acknowledged[at] |= dict(zip(range(offset, offset + count), names, strict=True))

    def _missing(self, at: TopicPartition, broker_id: int) -> list[int]:
        """Return the offsets of acknowledged records that a broker's log does not have."""
        records = self.brokers[broker_id].replicas.replicas[at].log.records
        kept = self.acknowledged[at]
        return [one for one, name in kept.items() if one >= len(records) or records[one] != name]

    def _unclean(self, at: TopicPartition, leader: int) -> None:
        """Let an unclean election take what its leader does not have: RECOVERING says so."""
        for offset in self._missing(at, leader):
            del self.acknowledged[at][offset]
            self.lost += 1

    def _complete(self, at: TopicPartition, state: PartitionRegistration) -> None:
        """Judge the candidates for the leadership (C10)."""
        if state.recovering:
            return
        for member in {*state.isr, *state.elr}:
            if self.brokers[member].may_have_lost:
                continue
            missing = self._missing(at, member)
            if missing:
                raise Violation("C10", f"{member} of ISR {state.isr}, ELR {state.elr} of {at} lacks {missing[:3]}")

    def _leaders(self, broker: SimBroker) -> None:
        """Judge the maximal ISR of a broker that leads (C11)."""
        if not broker.is_running:
            return
        for at in self.partitions:
            partition = broker.replicas.core.hosted.by_name.get(at)
            role = None if partition is None else partition.leader_role
            topic = self.newest.topic_named(at.topic)
            state = None if topic is None else topic.partitions.get(at.partition)
            if partition is None or role is None or state is None or state.leader_epoch != partition.leader_epoch:
                continue
            missing = {*state.isr, *state.elr} - {*role.isr.maximal_isr}
            if missing and len(role.isr.isr) >= MIN_ISR:
                raise Violation("C11", f"leader {broker.broker_id} of {at} waits for {role.isr}, and not for {missing}")

    def applied(self, broker: SimBroker) -> None:
        """Judge a broker that has applied an image (B4, K1, C11)."""
        self._leaders(broker)
        image = broker.applied
        for topic, number, state in image.all_partitions():
            at = TopicPartition(topic.name, number)
            replica = broker.replicas.replicas[at]
            if replica.leads != (state.leader == broker.broker_id):
                raise Violation("B4", f"broker {broker.broker_id} leads {at}: {replica.leads}, by the image {state}")
            newest = self.newest.partition(topic.topic_id, number)
            is_newest = newest is not None and newest.leader_epoch == state.leader_epoch
            if state.leader == broker.broker_id and is_newest:
                missing = self._missing(at, broker.broker_id)
                if missing:
                    raise Violation("K1", f"leader {broker.broker_id} of {at} lacks acknowledged records {missing[:3]}")

    def all_kept(self, is_serving: Callable[[SimBroker], bool]) -> None:
        """Judge the replicas at the end: all records that were acknowledged are on all of them (K1)."""
        for at in self.partitions:
            for broker in filter(is_serving, self.brokers.values()):
                missing = self._missing(at, broker.broker_id)
                if missing:
                    raise Violation(
                        "K1", f"replica {broker.broker_id} of {at} lacks acknowledged records {missing[:3]}"
                    )


def _is_unclean(was: PartitionRegistration, now: PartitionRegistration) -> bool:
    """Return whether a change records an unclean election, by a RECOVERING leader."""
    is_elected = now.has_leader and now.leader_epoch != was.leader_epoch
    return now.recovering and is_elected and (not was.recovering or now.leader not in {*was.isr, *was.elr})


def _check_unclean(where: str, was: PartitionRegistration, now: PartitionRegistration) -> None:
    """Judge an unclean election, where unclean.leader.election.enable is false (C9).

    The record may take the last candidate away, too: one that registers after an unclean shutdown.
    """
    if was.last_known_elr != (now.leader,) or now.isr != (now.leader,) or now.elr:
        raise Violation("C9", f"{where}: {now.leader} is elected uncleanly, and is not the last candidate: {was}")


def _check_epochs(where: str, was: PartitionRegistration | None, now: PartitionRegistration) -> None:
    if was is None:
        return
    if now.leader_epoch < was.leader_epoch or now.partition_epoch <= was.partition_epoch:
        raise Violation("C5", f"{where}: {was} becomes {now}")
    if now.leader != was.leader and now.leader_epoch == was.leader_epoch:
        raise Violation("C5", f"{where}: another leader in leader epoch {now.leader_epoch}")


def _check_members(where: str, state: PartitionRegistration, *, elr: bool) -> None:
    isr, eligible = set(state.isr), set(state.elr)
    if len(isr) != len(state.isr) or not isr <= set(state.replicas) or not eligible <= set(state.replicas):
        raise Violation("C6", f"{where}: members that are no replicas: {state}")
    if isr & eligible or (len(isr) >= MIN_ISR and eligible) or (state.has_leader and state.leader not in isr):
        raise Violation("C6", f"{where}: {state}")
    if not elr and (eligible or not isr):
        raise Violation("C6", f"{where}: without eligible leader replicas the ISR keeps a member: {state}")
    if elr and not state.has_leader and isr:
        raise Violation("C6", f"{where}: no leader, and an ISR: {state}")
    if len(state.last_known_elr) > 1 or (state.has_leader and state.last_known_elr):
        raise Violation("C9", f"{where}: {state}")


def _check_alive(where: str, state: PartitionRegistration, image: MetadataImage) -> None:
    for member in {*state.isr, state.leader} - {-1}:
        broker: RegisteredBroker | None = image.brokers.get(member)
        is_active = broker is not None and broker.is_active
        if not is_active and (member == state.leader or len(state.isr) > 1 or image.elr_enabled):
            raise Violation("C7", f"{where}: {member} is fenced or shuts down: {state}")
