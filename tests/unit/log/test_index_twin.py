"""The two sparse indexes against dumb lists (OffsetIndex, TimeIndex): look-up, append, truncation, reopen, fullness."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge_broker.log.index import WRITTEN_TOGETHER, OffsetIndex, TimeIndex

STEP = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 50), st.integers(1, 5000)),
    st.tuples(st.just("append"), st.integers(1, 50), st.integers(1, 5000)),
    st.tuples(st.just("cut"), st.integers(0, 600), st.just(0)),
    st.tuples(st.just("reopen"), st.just(0), st.just(0)),
)


@given(st.lists(STEP, max_size=30), st.lists(st.integers(0, 700), max_size=8))
@settings(max_examples=examples(100), deadline=None)
def test_an_offset_index_is_a_list_of_rising_pairs(steps, targets):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "0.index"
        index, twin = OffsetIndex(path, 80), list[tuple[int, int]]()
        index.create()
        for name, offset_step, position_step in steps:
            if name == "append" and not index.is_full:
                last = twin[-1] if twin else (0, 0)
                twin.append((last[0] + offset_step, last[1] + position_step))
                index.append(*twin[-1])
            elif name == "cut":
                index.truncate_to(offset_step)
                twin = [entry for entry in twin if entry[0] < offset_step]
            elif name == "reopen":
                index.write_out()
                assert path.stat().st_size == 8 * len(twin)
                index.close()
                index = OffsetIndex(path, 80)
            assert index.entries() == twin
            assert path.stat().st_size % 8 == 0
            assert path.stat().st_size <= 8 * len(twin)
            assert index.is_full == (len(twin) == 10)
            assert index.is_sound(1 << 30)
        for target in targets:
            assert index.floor(target) == max((at for offset, at in twin if offset <= target), default=0)
            assert index.floor_position(target * 10) == max((at for _, at in twin if at <= target * 10), default=0)
        assert index.last_position() == (twin[-1][1] if twin else 0)
        index.close()


TIMES = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 40), st.integers(0, 40), st.booleans()),
    st.tuples(st.just("append"), st.integers(0, 40), st.integers(0, 40), st.booleans()),
    st.tuples(st.just("cut"), st.integers(0, 60), st.just(0), st.just(value=False)),
    st.tuples(st.just("reopen"), st.just(0), st.just(0), st.just(value=False)),
)


@given(st.lists(TIMES, max_size=30), st.lists(st.integers(-1, 60), max_size=8))
@settings(max_examples=examples(100), deadline=None)
def test_a_time_index_takes_only_what_grows_and_keeps_a_slot_for_the_last(steps, targets):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "0.timeindex"
        index, twin = TimeIndex(path, 60), list[tuple[int, int]]()
        index.create()
        for name, time_ms, offset, is_last in steps:
            if name == "append":
                index.maybe_append(time_ms, offset, last=is_last)
                grows = not twin or (time_ms > twin[-1][0] and offset >= twin[-1][1])
                if grows and len(twin) < (5 if is_last else 4):
                    twin.append((time_ms, offset))
            elif name == "cut":
                index.truncate_to(time_ms)
                twin = [entry for entry in twin if entry[1] < time_ms]
            else:
                index.write_out()
                assert path.stat().st_size == 12 * len(twin)
                index.close()
                index = TimeIndex(path, 60)
            assert index.entries() == twin
            assert path.stat().st_size % 12 == 0
            assert path.stat().st_size <= 12 * len(twin)
            assert index.is_full == (len(twin) >= 4)
            assert index.is_sound()
        for target in targets:
            assert index.floor(target) == max((offset for time_ms, offset in twin if time_ms <= target), default=0)
        index.close()


def test_entries_are_written_together_and_the_rest_on_request(tmp_path):
    """Rule 4: what reaches the file is always the first entries, in order; a truncation counts those in memory too."""
    path = tmp_path / "0.index"
    index = OffsetIndex(path, 8 * 1000)
    index.create()
    for at in range(1, WRITTEN_TOGETHER):
        index.append(at, 100 * at)
    assert path.stat().st_size == 0
    index.append(WRITTEN_TOGETHER, 100 * WRITTEN_TOGETHER)
    index.append(WRITTEN_TOGETHER + 1, 100 * WRITTEN_TOGETHER + 1)
    assert path.stat().st_size == 8 * WRITTEN_TOGETHER
    index.truncate_to(WRITTEN_TOGETHER + 1)
    assert path.stat().st_size == 8 * WRITTEN_TOGETHER
    index.append(WRITTEN_TOGETHER + 5, 100 * WRITTEN_TOGETHER + 5)
    index.write_out()
    index.close()
    assert OffsetIndex(path, 8 * 1000).entries() == index.entries()
    assert len(index.entries()) == WRITTEN_TOGETHER + 1


def test_a_time_index_that_was_just_opened_is_read_for_its_first_look_up(tmp_path: Path) -> None:
    index = TimeIndex(tmp_path / "0.timeindex", 120)
    index.create()
    index.maybe_append(1_000, 5)
    index.write_out()
    index.close()
    assert TimeIndex(tmp_path / "0.timeindex", 120).floor(1_000) == 5
