"""Metadata transactions (KIP-868): their records show all at once at the end, or never."""

from __future__ import annotations

from typing import Any

from tidegauge.kafka.metadata_records.abort_transaction_record import AbortTransactionRecord
from tidegauge.kafka.metadata_records.begin_transaction_record import BeginTransactionRecord
from tidegauge.kafka.metadata_records.end_transaction_record import EndTransactionRecord
from tidegauge.kafka.metadata_records.feature_level_record import FeatureLevelRecord
from tidegauge.kafka.metadata_records.producer_ids_record import ProducerIdsRecord
from tidegauge.kafka.metadata_records.remove_topic_record import RemoveTopicRecord
from tidegauge_controller.metadata.image import Provenance
from tidegauge_controller.metadata.loader import MetadataLoader
from tidegauge_controller.metadata.records import made
from tidegauge_controller.metadata.snapshot import snapshot_records


def load(loader: MetadataLoader, offset: int, *messages: Any) -> list[str]:
    return [fault.sentence for fault in loader.load([made(one) for one in messages], offset, 1, 0)]


def started() -> MetadataLoader:
    loader = MetadataLoader()
    load(loader, 0, FeatureLevelRecord("metadata.version", 30), ProducerIdsRecord(0, 0, 1000))
    return loader


def test_nothing_of_an_open_transaction_shows_until_its_end() -> None:
    loader = started()
    load(loader, 2, BeginTransactionRecord("x"), ProducerIdsRecord(0, 0, 2000))
    load(loader, 4, ProducerIdsRecord(0, 0, 3000))
    assert (loader.image.next_producer_id, loader.image.provenance.offset) == (1000, 1)
    load(loader, 5, EndTransactionRecord())
    assert (loader.image.next_producer_id, loader.image.provenance.offset) == (3000, 5)


def test_what_an_aborted_transaction_did_never_shows() -> None:
    loader = started()
    load(loader, 2, BeginTransactionRecord("x"), ProducerIdsRecord(0, 0, 2000))
    load(loader, 4, AbortTransactionRecord("no"), FeatureLevelRecord("group.version", 1))
    assert loader.image.next_producer_id == 1000
    assert loader.image.features == {"group.version": 1}
    assert loader.image.provenance.offset == 5


def test_what_precedes_a_begin_in_its_batch_shows_but_is_no_place_for_a_snapshot() -> None:
    """MetadataBatchLoader: such an image does not end where a batch ends."""
    loader = started()
    load(loader, 2, ProducerIdsRecord(0, 0, 2000), BeginTransactionRecord("x"), ProducerIdsRecord(0, 0, 3000))
    assert (loader.image.next_producer_id, loader.image.provenance.offset) == (2000, 2)
    assert not loader.is_batch_aligned
    load(loader, 5, EndTransactionRecord())
    assert loader.is_batch_aligned
    load(loader, 6, BeginTransactionRecord("x"))
    assert loader.is_batch_aligned


def test_transactions_that_do_not_match_are_reported_and_skipped() -> None:
    loader = started()
    assert load(loader, 2, EndTransactionRecord()) == [
        "Encountered EndTransactionRecord without having seen a BeginTransactionRecord"
    ]
    assert load(loader, 3, AbortTransactionRecord()) == [
        "Encountered AbortTransactionRecord without having seen a BeginTransactionRecord"
    ]
    load(loader, 4, BeginTransactionRecord())
    assert load(loader, 5, BeginTransactionRecord()) == [
        "Encountered BeginTransactionRecord while already in a transaction"
    ]
    assert loader.in_transaction


def test_a_batch_goes_on_behind_a_record_that_can_not_be_replayed() -> None:
    loader = started()
    assert len(load(loader, 2, RemoveTopicRecord(bytes(16)), ProducerIdsRecord(0, 0, 2000))) == 1
    assert loader.image.next_producer_id == 2000


def test_a_snapshot_replaces_everything_and_ends_an_open_transaction() -> None:
    loader = started()
    records = list(snapshot_records(loader.image))
    load(loader, 2, ProducerIdsRecord(0, 0, 5000), BeginTransactionRecord())
    assert loader.load_snapshot(records, Provenance(9, 2, 3)) == []
    assert not loader.in_transaction
    assert loader.is_batch_aligned
    assert (loader.image.next_producer_id, loader.image.provenance) == (1000, Provenance(9, 2, 3))
