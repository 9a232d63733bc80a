"""The clients of a simulated cluster: records sent, responses and reads; in the end the accountant audits it.

The same audit judges real clusters (``tidegauge verify``): lost, duplicated, reordered, misplaced and phantom records,
reads that changed. With acks=1 a record may be lost; nothing else is forgiven. Of records that power losses took with
the last in-sync copy, and that the checker has named, nothing is expected here: an idempotent producer may send one
again.

An idempotent producer has one batch in flight, and sends it again, perhaps to another leader, until it hears that it is
committed. Every other batch is sent once, by a producer of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from tidegauge.errors import ErrorCode
from tidegauge.record_batch import HEADER_BYTES, make_batch
from tidegauge_broker.replica.messages import ACKS_ALL
from tidegauge_client.records import NewRecord, encode_batch
from tidegauge_client.sent_record import FAIL, INFO, OK, SentRecord
from tidegauge_lab.accountant.audit import audit
from tidegauge_lab.accountant.books import Books, CommittedLog, KeptRecord, Kind, ReadRecord
from tidegauge_proof.simulator.memory_log import START_MS, MemoryLog, batch_of, header_of

PRODUCER_ID = 7
_new_tuple = tuple.__new__  # makes a named tuple in a third of the time
_NONE = ErrorCode.NONE  # a member of an enumeration takes long to look up
_TOPIC = "orders"
_FORGIVEN_WITH_ACKS_1 = frozenset({Kind.LOST, Kind.LOST_TAIL})


@dataclass(slots=True, eq=False)
class Produced:
    """One batch of a client.

    ``first_number`` is the value of its first record, ``first_sequence`` is -1 if it is not idempotent; ``invoked`` and
    ``answered`` are places in the order of events.
    """

    acks: int
    first_number: int
    record_count: int
    data: bytes
    invoked: int
    first_sequence: int = -1
    outcome: str = INFO
    responded: int = -1
    base_offset: int = -1
    error: str = ""


@lru_cache(maxsize=4096)
def idempotent_batch(first_number: int, record_count: int, first_sequence: int) -> bytes:
    """Return a batch of the idempotent producer: the same records under another header."""
    data = batch_of(first_number, record_count)
    header = header_of(data)._replace(producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=first_sequence)
    return make_batch(header, data[HEADER_BYTES:])


class Clients:
    """The book of one partition; its records are numbered from ``first_number`` on."""

    def __init__(self, first_number: int = 0) -> None:
        self.now = 0
        self.numbers = first_number
        self.acknowledged = 0
        self.under_way: Produced | None = None
        """The idempotent producer's batch."""
        self._sequence = 0
        self._sent: list[Produced] = []
        self._reads: list[tuple[int, int, int]] = []
        self.number_of: dict[int, int] = {}
        """The first number of each batch, by its CRC."""

    def send(self, acks: int, record_count: int) -> Produced:
        """Return a batch of a producer that sends no other."""
        return self._send(acks, record_count, batch_of(self.numbers, record_count))

    def send_idempotent(self, record_count: int) -> Produced:
        """Return the idempotent producer's batch in flight, else its next one."""
        if self.under_way is None:
            data = idempotent_batch(self.numbers, record_count, self._sequence)
            self.under_way = self._send(ACKS_ALL, record_count, data, self._sequence)
            self._sequence += record_count
        return self.under_way

    def send_in_transaction(
        self,
        record_count: int,
        producer_id: int,
        producer_epoch: int,
        first_sequence: int,
        first_number: int | None = None,
    ) -> Produced:
        """Return a batch of a transactional producer; it counts as sent once.

        Args:
            record_count: of its records.
            producer_id: of the producer.
            producer_epoch: of the producer.
            first_sequence: of its first record.
            first_number: of its first record, if its numbers were taken before (``take_numbers``).
        """
        if first_number is None:
            first_number = self.take_numbers(record_count)
        values = range(first_number, first_number + record_count)
        data = encode_batch(
            [NewRecord(value.to_bytes(4, "big"), timestamp_ms=START_MS) for value in values],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=first_sequence,
            is_transactional=True,
        )
        return self._noted(Produced(ACKS_ALL, first_number, record_count, bytes(data), 0))

    def take_numbers(self, count: int) -> int:
        """Take the next numbers for records; return the first."""
        first = self.numbers
        self.numbers += count
        return first

    def _send(self, acks: int, record_count: int, data: bytes, first_sequence: int = -1) -> Produced:
        return self._noted(Produced(acks, self.take_numbers(record_count), record_count, data, 0, first_sequence))

    def _noted(self, produced: Produced) -> Produced:
        """Note a batch that is sent now."""
        self.now += 1
        produced.invoked = self.now
        data = produced.data
        self.number_of[header_of(data).crc] = produced.first_number
        self._sent.append(produced)
        return produced

    def responded(self, produced: Produced, error: ErrorCode, base_offset: int, *, at_once: bool) -> None:
        """Note a response. The first acknowledgement counts; an error that came at once says that nothing was written.

        But for KAFKA_STORAGE_ERROR: what a failed disk holds is known when it works again.
        """
        if produced.outcome == OK:
            return
        self.now += 1
        if error is _NONE:
            produced.outcome, produced.responded, produced.base_offset = OK, self.now, base_offset
            self.acknowledged += 1
            if self.under_way is produced:
                self.under_way = None
        elif produced.first_sequence < 0:
            is_definite = at_once and error is not ErrorCode.KAFKA_STORAGE_ERROR
            produced.outcome, produced.error = FAIL if is_definite else INFO, error.name

    def has_read(self, offset: int, batch_crc: int, place: int) -> None:
        """Note a record that a consumer read."""
        self._reads.append((offset, batch_crc, place))

    def end(self) -> None:
        """Let go of everything: the history is over."""
        self._sent.clear()
        self._reads.clear()

    def complaint(self, log: MemoryLog, lost: Collection[int]) -> str:
        """Return the accountant's complaint about a fully committed log; empty if none.

        ``lost`` are the numbers of records that may be lost.
        """
        kept = [
            KeptRecord(offset, None, self._value(name.batch_crc, name.place), START_MS, name.leader_epoch)
            for offset, name in enumerate(log.records)
        ]
        reads = [
            ReadRecord(0, offset, None, self._value(crc, place))
            for offset, crc, place in self._reads
            if self.number_of[crc] + place not in lost
        ]
        sent = [record for produced in self._sent for record in _records(produced, lost)]
        committed = CommittedLog(0, 0, log.log_end_offset, kept, log_end_offset=log.log_end_offset)
        report = audit(Books(_TOPIC, sent, {0: committed}, reads=reads, is_complete=True))
        for kind, tally in report.tallies.items():
            forgiven = tally.by_acks["1"] if kind in _FORGIVEN_WITH_ACKS_1 else 0
            if tally.count > forgiven:
                return f"{kind.value}: {tally.examples[0].message}"
        return ""

    def _value(self, batch_crc: int, place: int) -> bytes:
        return (self.number_of[batch_crc] + place).to_bytes(4, "big")


def _records(produced: Produced, lost: Collection[int]) -> list[SentRecord]:
    is_idempotent = produced.first_sequence >= 0
    is_lost = bool(lost) and any(produced.first_number + place in lost for place in range(produced.record_count))
    outcome = INFO if is_lost else produced.outcome
    producer = "idempotent" if is_idempotent else f"producer {produced.first_number}"
    acks = "all" if produced.acks == ACKS_ALL else str(produced.acks)
    return [
        _new_tuple(
            SentRecord,
            (
                producer,
                number,
                None,
                number.to_bytes(4, "big"),
                START_MS,
                acks,
                is_idempotent,
                produced.invoked,
                outcome,
                produced.responded if outcome == OK else -1,
                0,
                produced.base_offset + place if outcome == OK else -1,
                produced.error,
            ),
        )
        for place, number in enumerate(range(produced.first_number, produced.first_number + produced.record_count))
    ]
