"""A search for the largest time ends, whatever the headers of batches claim: a producer writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tidegauge_broker.log.searching import carried_out, with_largest_timestamp

FALSE = 2**62
"""A time that a header claims and no record has."""


class Spot(NamedTuple):
    """A batch in a segment: what its header claims, and the time of its one record."""

    base_offset: int
    max_timestamp_ms: int
    record_ms: int
    has_records: bool = True

    @property
    def last_offset(self) -> int:
        return self.base_offset


class Segment:
    """A segment of such batches; counts how often it is walked through."""

    base_offset = 0

    def __init__(self, *spots: Spot) -> None:
        self.spots = spots
        self.walks = 0
        self.largest_timestamp = (max(spot.max_timestamp_ms for spot in spots), 0)

    def from_time(self, timestamp_ms: int, offset: int) -> Iterator[Spot]:
        del timestamp_ms, offset
        self.walks += 1
        assert self.walks < 100
        return iter(self.spots)

    def batch_bytes(self, spot: Spot) -> Spot:
        return spot


def look(search: Any, spot: Any, timestamp_ms: int, offset: int) -> tuple[int, int] | None:
    del search, offset
    return (spot.base_offset, spot.record_ms) if spot.record_ms >= timestamp_ms else None


@pytest.mark.parametrize("lies", [1, 3, 16])
def test_a_header_that_claims_a_time_which_no_record_has_hides_no_other(lies: int):
    false = [Spot(place, FALSE + place, 5) for place in range(lies)]
    segment = Segment(*false, Spot(lies, 9, 9), Spot(lies + 1, 7, 7))
    assert carried_out(with_largest_timestamp([segment], 0, 100), look) == (lies, 9)  # type: ignore[list-item]


def test_a_log_of_lies_ends_the_search():
    segment = Segment(*(Spot(place, FALSE + place, 5) for place in range(1000)))
    assert carried_out(with_largest_timestamp([segment], 0, 2000), look) is None  # type: ignore[list-item]
