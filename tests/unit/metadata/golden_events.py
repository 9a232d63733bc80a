"""The events of Kafka's metadata log: which records of a batch one request or one timer caused."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.unit.metadata.kafka_log import kafka_log

from tidegauge.kafka.kraft.json_text import json_text
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.kafka.metadata_records.broker_registration_change_record import BrokerRegistrationChangeRecord
from tidegauge.kafka.metadata_records.no_op_record import NoOpRecord
from tidegauge.kafka.metadata_records.partition_change_record import PartitionChangeRecord
from tidegauge.kafka.metadata_records.register_broker_record import RegisterBrokerRecord
from tidegauge_controller.metadata.image import EMPTY, MetadataImage, Provenance
from tidegauge_controller.metadata.loader import MetadataLoader


class GoldenEvent(NamedTuple):
    """An event of the log.

    Attributes:
        kind: ``fence``, ``unfence``, ``shutdown``, ``register``, ``directories``, ``cordon``, else the type of the
            first record.
        offset: of its first record.
        image: before it.
        records: that Kafka's controller wrote.
    """

    kind: str
    offset: int
    step: str
    image: MetadataImage
    records: tuple[MetadataRecord, ...]


def golden_events(name: str) -> list[GoldenEvent]:
    """Return the events of a log in order."""
    found = []
    loader = MetadataLoader(EMPTY)
    for batch in kafka_log(name):
        for offset, kind, records in _divided(batch.base_offset, list(batch.records)):
            if kind != "NoOpRecord":
                found.append(GoldenEvent(kind, offset, batch.step, loader.image, tuple(records)))
            faults = loader.load(records, offset, batch.epoch, 0)
            assert not faults or name == "upgrade"
    return found


def _divided(offset: int, records: list[MetadataRecord]) -> list[tuple[int, str, list[MetadataRecord]]]:
    """Divide a batch: changes of partitions belong to the registration or change beside them."""
    events: list[tuple[int, str, list[MetadataRecord]]] = []
    at = 0
    while at < len(records):
        end, kind = at + 1, type(records[at].message).__name__
        if isinstance(records[at].message, NoOpRecord):
            pass
        elif kind in {"BeginTransactionRecord", "TopicRecord"}:
            end = len(records)
        elif isinstance(records[at].message, BrokerRegistrationChangeRecord):
            kind = _change_kind(records[at].message)
            if kind in {"unfence", "shutdown"}:
                end = _behind_changes(records, end)
        elif isinstance(records[at].message, PartitionChangeRecord):
            end = _behind_changes(records, end)
            following = records[end].message if end < len(records) else None
            if isinstance(following, RegisterBrokerRecord):
                end, kind = end + 1, "register"
            elif isinstance(following, BrokerRegistrationChangeRecord):
                end, kind = end + 1, _change_kind(following)
        elif isinstance(records[at].message, RegisterBrokerRecord):
            kind = "register"
        elif kind in {"ConfigRecord", "FeatureLevelRecord"}:
            end = len(records)
        events.append((offset + at, kind, records[at:end]))
        at = end
    return events


def _behind_changes(records: list[MetadataRecord], at: int) -> int:
    while at < len(records) and isinstance(records[at].message, PartitionChangeRecord):
        at += 1
    return at


def _change_kind(change: BrokerRegistrationChangeRecord) -> str:
    if change.fenced:
        return "fence" if change.fenced == 1 else "unfence"
    if change.in_controlled_shutdown:
        return "shutdown"
    return "directories" if change.log_dirs else "cordon"


def texts(records: Any) -> list[str]:
    """Return records as sorted texts: Kafka's order follows a hash map."""
    return sorted(
        f"{record.type.label} {record.version} {json_text(record.message, record.version)}" for record in records
    )


def provenance(offset: int) -> Provenance:
    """Return the provenance of an image that ends at an offset."""
    return Provenance(offset, 1, 0)
