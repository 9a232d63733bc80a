"""The whole audit: all checks on one topic's books, and the report.

Every kind of finding is a violation, with one exception: a phantom is only reported, unless the histories are said to
hold everything that was written (books, rule 1).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tidegauge.counted import counted
from tidegauge_lab.accountant.books import MEANINGS, NO_OFFSET, Books, Findings, Kind, ReplicaLog, Tally
from tidegauge_lab.accountant.epochs import check_epochs_along, check_events
from tidegauge_lab.accountant.ledger import Account, Ledger
from tidegauge_lab.accountant.min_isr import check_min_isr
from tidegauge_lab.accountant.order import check_order
from tidegauge_lab.accountant.reads import check_reads
from tidegauge_lab.accountant.replicas import check_replicas

NEEDS_HISTORY = (
    "whether records are lost, kept though they failed, phantoms, duplicated or reordered: that needs what producers "
    "were acknowledged (--history F, of `produce --history F`)"
)
NEEDS_EVENTS = (
    "whether a high watermark fell, two brokers led at once, or acks=all was acknowledged below min.insync.replicas: "
    "that needs the brokers' event logs (--dir, where the cluster runs)"
)
NEEDS_READS = (
    "whether consumers have read what the log holds: that needs what they have read (--reads F, of `consume -o json`)"
)


@dataclass(slots=True)
class Report:
    """The findings of an audit.

    Attributes:
        accounts: by acks level, if there is a history.
        tallies: by kind; a kind that was not found is missing.
        partitions: how many were read.
        records: how many the committed log holds.
        replicas: how many were compared.
        from_disk: the ones read from a broker's disk, since it does not respond: partitions by broker.
        not_checked: what could not be checked, and why.
    """

    topic: str
    accounts: dict[str, Account]
    tallies: dict[Kind, Tally]
    partitions: int
    records: int
    replicas: int
    is_complete: bool
    from_disk: dict[int, list[int]] = field(default_factory=dict)
    not_checked: list[str] = field(default_factory=list)

    def is_violation(self, kind: Kind) -> bool:
        """Whether finding it unbalances the books."""
        return kind is not Kind.PHANTOM or self.is_complete

    @property
    def is_balanced(self) -> bool:
        """Whether nothing was found that must not be."""
        return not any(tally.count and self.is_violation(kind) for kind, tally in self.tallies.items())

    def count(self, kind: Kind) -> int:
        """How often it was found."""
        tally = self.tallies.get(kind)
        return 0 if tally is None else tally.count

    def to_json(self) -> dict[str, Any]:
        """Return the document of ``tidegauge verify -o json``; all keys always."""
        return {
            "topic": self.topic,
            "balanced": self.is_balanced,
            "partitions": self.partitions,
            "records": self.records,
            "replicas": self.replicas,
            "read_from_disk": [
                {"broker": broker, "partitions": partitions} for broker, partitions in sorted(self.from_disk.items())
            ],
            "acks": {level: asdict(account) for level, account in sorted(self.accounts.items())},
            "counts": {kind.value: self.count(kind) for kind in Kind},
            "findings": [
                {
                    "kind": kind.value,
                    "meaning": MEANINGS[kind],
                    "violation": self.is_violation(kind),
                    "count": tally.count,
                    "by_acks": dict(sorted(tally.by_acks.items())),
                    "examples": [example._asdict() for example in tally.examples],
                }
                for kind, tally in sorted(self.tallies.items(), key=lambda item: list(Kind).index(item[0]))
            ],
            "not_checked": self.not_checked,
        }


def audit(books: Books) -> Report:
    """Do every check whose input the books have."""
    findings = Findings()
    accounts: dict[str, Account] = {}
    not_checked: list[str] = []
    if books.sent is None:
        not_checked.append(NEEDS_HISTORY)
    else:
        matching = Ledger(books.sent, books.logs, findings).match()
        accounts = matching.accounts
        check_order(books.sent, matching, findings)
        unordered = sum(matching.offsets[index] is not None for index in matching.uncertain)
        if unordered:
            not_checked.append(
                f"the order of {counted(unordered, 'record')}: equal records, with the same timestamp, may be in "
                "the same place"
            )
    from_disk: dict[int, list[int]] = {}
    by_partition: dict[int, list[ReplicaLog]] = {}
    for replica in books.replicas:
        by_partition.setdefault(replica.partition, []).append(replica)
        if replica.is_from_disk:
            from_disk.setdefault(replica.broker, []).append(replica.partition)
    for _, replicas in sorted(by_partition.items()):
        check_replicas(replicas, findings, first_differences=books.first_differences)
    for partition, ids in books.topic_ids.items():
        if ids.differ:
            findings.add(Kind.TOPIC_ID_DIFFERS, partition, NO_OFFSET, "{}", ids.listed)
    for log in books.logs.values():
        check_epochs_along(log, findings)
    if books.reads is None:
        not_checked.append(NEEDS_READS)
    else:
        check_reads(books.reads, books.logs, findings)
    if books.events is None:
        not_checked.append(NEEDS_EVENTS)
    else:
        check_events(books.topic, books.events, findings)
        if books.sent is not None:
            unjudged = check_min_isr(books.topic, books.sent, books.events, findings)
            if unjudged:
                not_checked.append(
                    f"whether enough replicas were in sync for {counted(unjudged, 'acknowledgement')} with acks=all: "
                    "the event logs do not say who led then, or with which min.insync.replicas"
                )
    return Report(
        topic=books.topic,
        accounts=accounts,
        tallies=findings.tallies,
        partitions=len(books.logs),
        records=sum(len(log.records) for log in books.logs.values()),
        replicas=len(books.replicas),
        is_complete=books.is_complete,
        from_disk=from_disk,
        not_checked=not_checked,
    )
