"""Order: of each producer's records in a partition, and of records in real time.

Rules:
    1. A record given to one producer earlier comes earlier, within a partition. (With acks=1 or 0, retries and several
       requests in flight a correct cluster may break this too: Kafka promises it to idempotent producers.)
    2. A record handed over after another was acknowledged comes behind it, whichever producers sent them.

A record is convicted once, by the furthest record that it should follow. Records that are not in the log, or whose
failure was definite, have no order, nor have records whose place may be that of an equal record (ledger, rule 5). Each
record counts at the place where the ledger found it.

Source: Jepsen's Kafka checker (non-monotonic send; real-time order). O(N log N), for the two sorts by time.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge_client.sent_record import FAIL, SentRecord
from tidegauge_lab.accountant.books import Findings, Kind, Named
from tidegauge_lab.accountant.ledger import Matching


def check_order(sent: Sequence[SentRecord], matching: Matching, findings: Findings) -> None:
    """Report records that come before one that they should follow."""
    by_partition: dict[int, list[int]] = {}
    for index, record in enumerate(sent):
        if matching.offsets[index] is not None and record.outcome != FAIL and index not in matching.uncertain:
            by_partition.setdefault(matching.partitions[index], []).append(index)
    offsets = [-1 if offset is None else offset for offset in matching.offsets]
    for partition, indexes in sorted(by_partition.items()):
        _check_producers(sent, offsets, partition, indexes, findings)
        _check_real_time(sent, offsets, partition, indexes, findings)


def _check_producers(
    sent: Sequence[SentRecord], offsets: Sequence[int], partition: int, indexes: list[int], findings: Findings
) -> None:
    furthest: dict[str, int] = {}
    for index in sorted(indexes, key=lambda index: sent[index].number):
        record = sent[index]
        before = furthest.get(record.producer)
        if before is None or offsets[index] > offsets[before]:
            furthest[record.producer] = index
        else:
            findings.add(
                Kind.REORDERED,
                partition,
                offsets[index],
                "{} is at offset {}, before record {}, which was sent earlier and is at offset {}",
                Named(record),
                offsets[index],
                sent[before].number,
                offsets[before],
                acks=record.acks,
            )


def _check_real_time(
    sent: Sequence[SentRecord], offsets: Sequence[int], partition: int, indexes: list[int], findings: Findings
) -> None:
    acknowledged = sorted(
        (index for index in indexes if sent[index].is_acknowledged), key=lambda index: sent[index].completed_us
    )
    furthest = -1
    position = 0
    for index in sorted(indexes, key=lambda index: sent[index].invoked_us):
        record = sent[index]
        while position < len(acknowledged) and sent[acknowledged[position]].completed_us < record.invoked_us:
            if furthest < 0 or offsets[acknowledged[position]] > offsets[furthest]:
                furthest = acknowledged[position]
            position += 1
        if furthest >= 0 and offsets[index] < offsets[furthest]:
            findings.add(
                Kind.REORDERED_IN_REAL_TIME,
                partition,
                offsets[index],
                "{} was handed over {} us after {} was acknowledged, but is at offset {}, before offset {}",
                Named(record),
                record.invoked_us - sent[furthest].completed_us,
                Named(sent[furthest]),
                offsets[index],
                offsets[furthest],
                acks=record.acks,
            )
