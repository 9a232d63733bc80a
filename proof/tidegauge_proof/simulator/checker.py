"""Invariants of one partition of a simulated cluster, checked after every event.

``committed`` is the truth: the records that any replica has had below its high watermark, in order. It only grows.

If histories may lose records, a power loss may take committed ones. An ISR member whose own power loss took a
record may be without it until it has it again; a member that lost it in any other way breaks StrongIsr. Once no member
of the ISR has it, it is lost, and named; ``committed`` ends before it, and who still has it (a broker out of the ISR, a
zombie) has not seen yet that it is one: that must end, too (Converges). Before that, different records below two high
watermarks are forgiven only if one of them is such a lost record, or was written on top of one. Should one who still
has it, or the first of it, enter the ISR before anything else is committed, by a proposal that was in flight, so much
was not lost after all.

| name | statement |
|---|---|
| HwLeLeo | high watermark <= log end offset, and the core's log end is the log's |
| HwMonotone | a leader's high watermark never falls within its leadership |
| LogMatchingHw | the records below any replica's high watermark are the same everywhere and for ever |
| StrongIsr | every member of the ISR in ZooKeeper holds all that is committed, be its process alive or not |
| OneLeaderPerEpoch | no two brokers lead in the same leader epoch |
| LeadershipReported | a leadership that a broker takes over or loses is reported once; one broker at most in an epoch |
| EpochsMonotone | record epochs never fall along a log |
| LeaderInIsr | the leader in ZooKeeper is none or in the ISR; the ISR is not empty and within the assigned replicas |
| EpochLaw | leader and partition epoch in ZooKeeper never fall; another leader has another leader epoch |
| AckedIsCommitted | an acks=all response names the place at which the record is committed |
| MinIsr | nothing is committed on fewer disks than min.insync.replicas |
| ConsumerSeesCommitted | a consumer gets committed records only, at the offsets it asked for |
| WholeBatches | a log is truncated between two batches, never inside one |
| ClientHistory | in the end the accountant finds no record lost, twice, reordered or invented, no read that changed |
| FailsAlone | a replica goes offline when its own directory fails or its own log meets a defect, never else |
| Proceeds | while a disk stays failed or damaged, all partitions that it does not hold converge and acknowledge |
| Converges | after the faults all replicas are in sync, equal, and have all that is committed |

Together StrongIsr and AckedIsCommitted say that no record acknowledged with acks=all is ever lost. The core's own
invariants (I1 to I8) are asserted in it and reported under their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegauge.control import NO_LEADER
from tidegauge.record_batch import BatchHeader, iterate_headers
from tidegauge_broker.replica.effects import LeadershipChanged
from tidegauge_broker.replica.messages import ACKS_ALL, FetchedPartition, ProduceResult
from tidegauge_proof.simulator.memory_broker import AT
from tidegauge_proof.simulator.memory_log import RecordName, header_of, names_of
from tidegauge_proof.simulator.stored_replica import StoredReplica

if TYPE_CHECKING:
    from tidegauge_proof.simulator.clients import Produced
    from tidegauge_proof.simulator.sim_partition import SimPartition


class Violation(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant
        self.message = message


@dataclass(slots=True)
class _Loss:
    """Records lost with the last in-sync copy: ``names`` from offset ``begin`` on, as ``lost[place]`` tells."""

    begin: int
    names: list[RecordName]
    isr: tuple[int, ...]
    place: int


class Checker:
    """Looks at one partition. ``may_lose`` lets a power loss take committed records from the last in-sync copy."""

    def __init__(self, min_insync_replicas: int = 1, *, may_lose: bool = False) -> None:
        self.world: SimPartition
        self.at = AT
        self.committed: list[RecordName] = []
        self.chain: list[int] = [0]
        self.lost: list[str] = []
        self.lost_numbers: set[int] = set()
        self._lost_names: set[RecordName] = set()
        self._taken: dict[int, set[RecordName]] = {}
        self._newest_loss: _Loss | None = None
        self._acknowledged: set[RecordName] = set()
        self.min_insync_replicas = min_insync_replicas
        self._may_lose = may_lose
        self.reports_leaderships = False
        """Whether the cores report the leaderships of this partition; the cluster sets it."""
        self._seen: dict[int, tuple[int, int, int, int, int, bool, int | None]] = {}
        self._leaders: dict[int, int] = {}
        self._coordinators: dict[int, int] = {}
        """Which broker has reported that it gained the leadership of an epoch."""
        self._state: tuple[int, int, int] = (-1, -1, NO_LEADER)

    def look_at(self, broker: StoredReplica) -> None:
        """After an event of this broker."""
        partition = broker.partition
        if partition is None:
            if broker.led_epoch is not None and broker.broker.is_running:
                self._misreported(broker, "lost")
            return
        leads = partition.leader_role is not None
        log, high_watermark = broker.log, partition.high_watermark
        seen = (
            broker.incarnation,
            high_watermark,
            partition.log_end_offset,
            partition.leader_epoch,
            log.cuts,
            leads,
            broker.led_epoch,
        )
        before = self._seen.get(broker.broker_id)
        if seen == before:
            return
        self._seen[broker.broker_id] = seen
        if partition.log_end_offset != log.log_end_offset or not 0 <= high_watermark <= log.log_end_offset:
            name = f"broker {broker.broker_id}"
            raise Violation("HwLeLeo", f"{name} has high watermark {high_watermark} and ends at {log.log_end_offset}")
        if (
            before is not None
            and before[0] == broker.incarnation
            and before[5]
            and leads
            and high_watermark < before[1]
        ):
            words = f"leader broker {broker.broker_id} went back from {before[1]} to {high_watermark}"
            raise Violation("HwMonotone", words)
        if leads and self._leaders.setdefault(partition.leader_epoch, broker.broker_id) != broker.broker_id:
            both = f"broker {broker.broker_id} and broker {self._leaders[partition.leader_epoch]}"
            raise Violation("OneLeaderPerEpoch", f"{both} lead in epoch {partition.leader_epoch}")
        if self.reports_leaderships and leads == (broker.led_epoch is None):
            self._misreported(broker, "gained" if leads else "lost")
        if self._may_lose:
            self._has_again(broker)
        if before is None or before[2] != log.log_end_offset or before[4] != log.cuts:
            self._check_epochs(broker, 1 if before is None or before[4] != log.cuts else before[2])
        self._check_committed(broker, high_watermark)
        self.check_isr()

    def was_committed(self, broker: StoredReplica, high_watermark: int) -> None:
        """Take in what a replica had committed when it responded, if the same event has taken it offline since."""
        if broker.is_offline:
            self._check_committed(broker, high_watermark)
            self.check_isr()

    def leadership_changed(self, broker: StoredReplica, change: LeadershipChanged) -> None:
        """Take in that a broker's coordinators were notified; its state is looked at afterwards."""
        epoch, broker_id = change.leader_epoch, broker.broker_id
        if change.leads == (broker.led_epoch is not None):
            self._misreported(broker, "gained" if change.leads else "lost", "twice")
        if change.leads and self._coordinators.setdefault(epoch, broker_id) != broker_id:
            raise Violation(
                "LeadershipReported",
                f"brokers {self._coordinators[epoch]} and {broker_id} reported that they lead in epoch {epoch}",
            )
        broker.led_epoch = epoch if change.leads else None

    @staticmethod
    def _misreported(broker: StoredReplica, what: str, how: str = "not") -> None:
        raise Violation(
            "LeadershipReported", f"broker {broker.broker_id} has {how} reported that it {what} the leadership"
        )

    def _check_epochs(self, broker: StoredReplica, first: int) -> None:
        records = broker.log.records
        for offset in range(max(first, 1), len(records)):
            if records[offset].leader_epoch < records[offset - 1].leader_epoch:
                raise Violation(
                    "EpochsMonotone",
                    f"on broker {broker.broker_id} offset {offset} is of epoch {records[offset].leader_epoch}, the one "
                    f"before of epoch {records[offset - 1].leader_epoch}",
                )

    def _check_committed(self, broker: StoredReplica, high_watermark: int) -> None:
        log, chain = broker.log, self.chain
        common = min(high_watermark, len(self.committed))
        if self._lost_names and self._stands_on_lost(log.records[:high_watermark]):
            return
        if log.chain[common] != chain[common]:
            offset = self._first_difference(broker)
            if self._may_lose and self._stands_on_a_former_incarnation(broker, offset):
                self._lose_beside(broker, offset, high_watermark)
                return
            raise Violation(
                "LogMatchingHw",
                f"broker {broker.broker_id} (high watermark {high_watermark}) has {_words(log.records[offset])} at "
                f"offset {offset}, where {_words(self.committed[offset])} was committed",
            )
        if high_watermark > common:
            self.committed += log.records[common:high_watermark]
            chain += log.chain[common + 1 : high_watermark + 1]
            holders = sum(
                len(other.log.chain) > high_watermark and other.log.chain[high_watermark] == chain[high_watermark]
                for other in self.world.brokers.values()
            )
            if self._may_lose:
                last = log.records[high_watermark - 1]
                holders += sum(last in taken for taken in self._taken.values())
            if holders < min(self.min_insync_replicas, len(self.world.brokers)):
                raise Violation(
                    "MinIsr",
                    f"offset {high_watermark - 1} is committed by broker {broker.broker_id} and is on {holders} of "
                    f"{self.min_insync_replicas} disks",
                )

    def _stands_on_a_former_incarnation(self, broker: StoredReplica, offset: int) -> bool:
        """Whether a leader of a former epoch hears only now of a replica whose record a power loss has taken since.

        The report was on its way when the power went, and the leader can't know: it was paused, perhaps. The records it
        commits are lost with that replica's disk, and other records may take their place.
        """
        partition = broker.partition
        assert partition is not None
        if partition.leader_role is None or partition.leader_epoch >= self.world.state_now.leader_epoch:
            return False
        return any(broker.log.records[offset] in taken for taken in self._taken.values())

    def _lose_beside(self, broker: StoredReplica, offset: int, high_watermark: int) -> None:
        """Name records that are lost though their leader, of a former epoch, commits them only now."""
        lost = broker.log.records[offset:high_watermark]
        self.lost.append(
            f"{len(lost)} from offset {offset} on, which broker {broker.broker_id} commits in a former epoch on the "
            "word of a replica that has lost them since"
        )
        self._are_lost(lost)

    def _first_difference(self, broker: StoredReplica) -> int:
        for offset, (mine, true) in enumerate(zip(broker.log.records, self.committed, strict=False)):
            if mine != true:
                return offset
        return len(broker.log.records)

    def check_isr(self) -> None:
        """StrongIsr."""
        loss = self._newest_loss
        if loss is not None and loss.begin == len(self.committed):
            self._find_again(loss)
        length = len(self.committed)
        without = 0
        for member in self.world.state_now.isr:
            broker = self.world.brokers[member]
            chain = broker.log.chain
            if len(chain) <= length or chain[length] != self.chain[length]:
                offset = self._first_difference(broker)
                if self._may_lose and self.committed[offset] in self._taken.get(member, ()):
                    without += 1
                    continue
                has = "nothing" if offset >= len(broker.log.records) else _words(broker.log.records[offset])
                raise Violation(
                    "StrongIsr",
                    f"broker {member} is in the ISR and has {has} at offset {offset}, where "
                    f"{_words(self.committed[offset])} was committed",
                )
        if without and without == len(self.world.state_now.isr):
            self._lose()

    def _lose(self) -> None:
        """Name the committed records that no member of the ISR has any more, after power losses."""
        isr = self.world.state_now.isr
        keep = max(self._first_difference(self.world.brokers[member]) for member in isr)
        loss = self._newest_loss = _Loss(keep, self.committed[keep:], isr, len(self.lost))
        self.lost.append(self._described(loss))
        self._are_lost(loss.names)
        del self.committed[keep:]
        del self.chain[keep + 1 :]

    def _described(self, loss: _Loss) -> str:
        acknowledged = [str(one) for one in self._numbers_of(n for n in loss.names if n in self._acknowledged)]
        return (
            f"{len(loss.names)} from offset {loss.begin} on, with the last in-sync copy, on broker "
            f"{', '.join(map(str, loss.isr))}; "
            f"acknowledged with acks=all: {f'records {chr(44).join(acknowledged)}' if acknowledged else 'none'}"
        )

    def _find_again(self, loss: _Loss) -> None:
        """Take back as lost what a member of the ISR still has, all of it or the first part."""
        begin = loss.begin
        for member in self.world.state_now.isr:
            log = self.world.brokers[member].log
            while loss.names and log.records[loss.begin : loss.begin + 1] == loss.names[:1]:
                if log.chain[loss.begin] != self.chain[loss.begin]:
                    break
                name = loss.names.pop(0)
                loss.begin += 1
                self.committed.append(name)
                self.chain.append(log.chain[loss.begin])
                self.lost_numbers.difference_update(self._numbers_of([name]))
                self._lost_names.discard(name)
        if not loss.names:
            del self.lost[loss.place]
            self._newest_loss = None
        elif loss.begin != begin:
            self.lost[loss.place] = self._described(loss)

    def _are_lost(self, names: Sequence[RecordName]) -> None:
        self._lost_names.update(names)
        self.lost_numbers.update(self._numbers_of(names))

    def _numbers_of(self, names: Iterable[RecordName]) -> list[int]:
        """Return the numbers of clients' records; others have none."""
        number_of = self.world.clients.number_of
        return [number_of[name.batch_crc] + name.place for name in names if name.batch_crc in number_of]

    def _stands_on_lost(self, records: Sequence[RecordName]) -> bool:
        """Whether one of them is lost; then all that follow it are, too."""
        if not self._lost_names:
            return False
        for offset, name in enumerate(records):
            if name in self._lost_names:
                self._are_lost(records[offset:])
                return True
        return False

    def _has_again(self, broker: StoredReplica) -> None:
        """End the excuse of a record that a power loss took and that was fetched again."""
        taken = self._taken.get(broker.broker_id)
        if taken:
            taken.difference_update(broker.log.records)

    def look_at_state(self) -> None:
        """After a write to ZooKeeper."""
        state = self.world.state_now
        version = state.partition_epoch
        leader_epoch, partition_epoch, leader = self._state
        leads_outside = state.leader != NO_LEADER and state.leader not in state.isr
        if not state.isr or leads_outside or not set(state.isr) <= set(self.world.replicas):
            raise Violation("LeaderInIsr", f"leader {state.leader}, ISR {list(state.isr)}")
        if state.leader_epoch < leader_epoch or version < partition_epoch:
            raise Violation(
                "EpochLaw",
                f"leader epoch {leader_epoch} became {state.leader_epoch}, partition epoch {partition_epoch} {version}",
            )
        if state.leader_epoch == leader_epoch and state.leader != leader:
            raise Violation("EpochLaw", f"leader {leader} became {state.leader} within leader epoch {leader_epoch}")
        self._state = state.leader_epoch, version, state.leader
        self.check_isr()

    def acknowledged(self, broker: StoredReplica, produced: Produced, result: ProduceResult) -> None:
        """Note a produce whose response has no error."""
        if produced.acks != ACKS_ALL:
            return
        base = result.base_offset
        header = header_of(produced.data)
        end = base + produced.record_count
        there = self.committed[base:end]
        expected = [(header.crc, place) for place in range(produced.record_count)]
        if [(record.batch_crc, record.place) for record in there] == expected:
            if self._may_lose:
                self._acknowledged.update(there)
            return
        if self._may_lose and self._stands_on_lost(broker.log.records[:end]):
            self.lost.append(
                f"acknowledged with acks=all by broker {broker.broker_id}, on top of what is lost: "
                f"{produced.record_count} at offset {base}"
            )
            return
        raise Violation(
            "AckedIsCommitted",
            f"broker {broker.broker_id} acknowledged offset {base}, where something else or nothing is committed",
        )

    def consumed(self, broker: StoredReplica, offset: int, response: FetchedPartition) -> None:
        """Note the response to a consumer that asked from an offset."""
        for header in iterate_headers(response.records):
            end = header.next_offset
            expected = names_of(header.leader_epoch, header.crc, header.record_count)
            self._note_read(header)
            if self.committed[header.base_offset : end] != expected or end <= offset:
                if self._may_lose and self._stands_on_lost(broker.log.records[:end]):
                    continue
                raise Violation(
                    "ConsumerSeesCommitted",
                    f"broker {broker.broker_id} gave a consumer offset {header.base_offset}, where something else or "
                    "nothing is committed",
                )

    def _note_read(self, header: BatchHeader) -> None:
        for place in range(header.record_count):
            self.world.clients.has_read(header.base_offset + place, header.crc, place)

    def loses_power(self, broker: StoredReplica, keep: int) -> None:
        """Note that a broker is about to lose what lies beyond an offset."""
        if self._may_lose:
            self._taken.setdefault(broker.broker_id, set()).update(broker.log.records[keep:])

    def converged(self, invariant: str = "Converges") -> None:
        """After the faults have ended and everything was delivered."""
        world = self.world
        if set(world.state_now.isr) != set(world.replicas):
            raise Violation(invariant, f"the ISR of {self.at} stays {list(world.state_now.isr)}")
        ends = {b: (broker.log.log_end_offset, self._hw(broker)) for b, broker in world.brokers.items()}
        if len({end for both in ends.values() for end in both}) != 1:
            raise Violation(invariant, f"log ends and high watermarks of {self.at} stay {ends}")
        if len({broker.log.chain[-1] for broker in world.brokers.values()}) != 1:
            raise Violation(invariant, f"the logs of {self.at} stay different")
        if len(self.committed) != next(iter(ends.values()))[0]:
            raise Violation(
                invariant, f"{len(self.committed)} records of {self.at} are committed, the logs hold {ends}"
            )
        piled = {b: len(broker.core.following.rounds) for b, broker in world.brokers.items()}
        if any(piled.values()):
            raise Violation(invariant, f"rounds that get no response any more pile up: {piled}")

    @staticmethod
    def _hw(broker: StoredReplica) -> int:
        return -1 if broker.partition is None else broker.partition.high_watermark


def _words(record: RecordName) -> str:
    return f"a record of epoch {record.leader_epoch} (CRC {record.batch_crc:08x}, place {record.place})"
