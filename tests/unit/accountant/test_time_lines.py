"""Which time a restore abandons, and what of histories and reads is not judged for it."""

from __future__ import annotations

from typing import Any

import pytest
from small_books import sent

from tidegauge_lab.accountant.books import ReadRecord
from tidegauge_lab.accountant.time_lines import TimeLines


def restores(*pairs: tuple[int, int]) -> list[dict[str, Any]]:
    """Restores at a time in ms, each of a snapshot that was taken at another."""
    return [{"kind": "restore", "time_ms": restored, "taken_ms": taken, "snapshot": "s"} for taken, restored in pairs]


@pytest.mark.parametrize(
    ("pairs", "abandoned"),
    [
        ((), ()),
        (((10, 20),), ((10, 20),)),
        (((10, 20), (30, 40)), ((10, 20), (30, 40))),
        (((10, 20), (10, 40)), ((10, 40),)),
        # A snapshot of abandoned time is restored: that time is the data's own again, up to the snapshot.
        (((10, 20), (15, 40)), ((15, 40),)),
        (((5, 8), (10, 20), (15, 40)), ((5, 8), (15, 40))),
    ],
)
def test_a_restore_abandons_the_time_since_its_snapshot(
    pairs: tuple[tuple[int, int], ...], abandoned: tuple[tuple[int, int], ...]
) -> None:
    assert tuple(TimeLines.of(restores(*pairs)).abandoned) == abandoned


def test_what_was_acknowledged_in_abandoned_time_is_left_out_and_named() -> None:
    lines, said = TimeLines.of(restores((10, 20))), list[str]()
    before = sent(0, invoked_us=9_000, completed_us=9_500)
    across = sent(1, invoked_us=9_900, completed_us=10_500)
    abandoned = sent(2, invoked_us=11_000, completed_us=12_000)
    after = sent(3, invoked_us=19_000, completed_us=20_500)
    unknown = sent(4, outcome="info", invoked_us=11_000, completed_us=-1)
    judged = lines.living([before, across, abandoned, after, unknown], said)
    assert [record.number for record in judged] == [0, 1, 3, 4]
    assert (judged[1].outcome, judged[1].offset) == ("info", -1), "the snapshot may hold it"
    assert said == [
        "1 record of the history, acknowledged after a snapshot was taken and before it was restored: a restore "
        "abandons what the cluster did in between"
    ]


def test_what_was_read_in_abandoned_time_is_left_out_and_named() -> None:
    lines, said = TimeLines.of(restores((10, 20))), list[str]()
    reads = [ReadRecord(0, offset, None, b"v", timestamp) for offset, timestamp in enumerate((9, 15, 21, -1))]
    assert [read.offset for read in lines.living_reads(reads, said)] == [0, 2, 3]
    assert len(said) == 1
    assert said[0].startswith("1 record that was read, ")


def test_without_a_restore_everything_is_judged() -> None:
    said: list[str] = []
    assert TimeLines().living([sent(0)], said) == [sent(0)]
    assert said == []
