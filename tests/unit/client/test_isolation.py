"""read_committed in the client: which batches of a response are skipped (KIP-98, Kafka's CompletedFetch)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.wire_responses.batches import TRANSACTIONAL, batch

from tidegauge.record_batch import iterate_headers, patch
from tidegauge.transaction_marker import Outcome, TransactionMarker, make_marker
from tidegauge_client.isolation import Aborted, without_aborted

COMMIT, ABORT = Outcome.COMMIT, Outcome.ABORT


def log(*entries: tuple[str, int]) -> bytes:
    """Batches of one record each: data and plain records, and the markers of producers."""
    made = bytearray()
    for offset, (kind, producer_id) in enumerate(entries):
        if kind in {"data", "plain"}:
            attributes = TRANSACTIONAL if kind == "data" else 0
            one = bytearray(batch(producer_id=producer_id, epoch=0, sequence=0, attributes=attributes))
        else:
            outcome = COMMIT if kind == "commit" else ABORT
            one = bytearray(make_marker(TransactionMarker(producer_id, 0, outcome, 0), 1))
        patch(one, 0, offset, 0)
        made += one
    return bytes(made)


def records(data: bytes, *aborted: Aborted) -> list[int]:
    """The offsets of the records that are left."""
    kept = without_aborted(data, iterate_headers(data), aborted)
    return [header.base_offset for header in kept if not header.is_control]


def test_records_of_an_aborted_transaction_are_skipped_until_its_marker():
    """Rules 1 to 3: another producer's, plain ones, and the producer's next transaction are read."""
    data = log(("data", 1), ("data", 2), ("plain", 3), ("abort", 1), ("data", 1), ("commit", 2), ("commit", 1))
    assert records(data, Aborted(0, 1)) == [1, 2, 4]


def test_the_marker_of_an_empty_transaction_ends_no_listed_one():
    """librdkafka 3369: the entry belongs to the producer's later transaction, which begins at its first offset."""
    data = log(("abort", 1), ("data", 1), ("abort", 1), ("data", 1), ("commit", 1))
    assert records(data, Aborted(1, 1)) == [3]


def test_several_aborted_transactions_of_a_producer_come_one_after_the_other():
    data = log(("data", 1), ("abort", 1), ("data", 1), ("commit", 1), ("data", 1), ("abort", 1))
    assert records(data, Aborted(4, 1), Aborted(0, 1)) == [2]


def test_a_list_that_is_longer_than_the_records_harms_nothing():
    """It names what overlaps, by whole segments of the index."""
    data = log(("plain", 9), ("data", 1), ("commit", 1))
    assert records(data, Aborted(77, 1), Aborted(50, 2)) == [0, 1]


@given(
    st.lists(st.tuples(st.sampled_from(["data", "data", "commit", "abort", "plain"]), st.integers(1, 3)), max_size=25)
)
def test_what_is_read_is_what_was_committed(entries: list[tuple[str, int]]) -> None:
    """Against the definition: a record is skipped if the next marker of its producer is an ABORT."""
    open_at: dict[int, int] = {}
    aborted: list[Aborted] = []
    fates: dict[int, bool] = {}
    members: dict[int, list[int]] = {}
    for offset, (kind, producer_id) in enumerate(entries):
        if kind == "data":
            open_at.setdefault(producer_id, offset)
            members.setdefault(producer_id, []).append(offset)
        elif kind in {"commit", "abort"} and producer_id in open_at:
            first = open_at.pop(producer_id)
            if kind == "abort":
                aborted.append(Aborted(first, producer_id))
            fates.update(dict.fromkeys(members.pop(producer_id), kind == "commit"))
    stable = min(open_at.values(), default=len(entries))  # a broker sends nothing above the last stable offset
    expected = [o for o in range(stable) if entries[o][0] == "plain" or (entries[o][0] == "data" and fates[o])]
    data = log(*entries[:stable])
    assert records(data, *aborted) == expected
