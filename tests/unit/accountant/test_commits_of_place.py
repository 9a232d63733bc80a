"""A search for a group's position finds the same as a walk over all commits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegauge_lab.accountant.transactions.commits import CommitsOfPlace
from tidegauge_lab.accountant.transactions.model import NEVER_US, Place, SendOffsets

AT = Place("orders", 0)
TIMES = st.integers(0, 12)


@st.composite
def settled_commits(draw: st.DrawFn) -> list[tuple[SendOffsets, int | None]]:
    """Draw commits with the times at which they were acknowledged, never before they were asked for."""
    asked = draw(st.lists(st.tuples(TIMES, st.none() | st.just(NEVER_US) | TIMES, st.integers(0, 3)), max_size=8))
    return [
        (SendOffsets("p", n, at, offsets={AT: offset}), took if took in {None, NEVER_US} else at + took)
        for n, (at, took, offset) in enumerate(asked)
    ]


@given(settled_commits(), TIMES)
def test_the_newest_before_a_time_is_that_of_a_walk(commits: list[tuple[SendOffsets, int | None]], before_us: int):
    found = CommitsOfPlace(AT, commits).newest(before_us)
    walked = [one for one, settled_us in commits if settled_us is not None and 0 <= settled_us < before_us]
    if found is None:
        assert not walked
    else:
        assert found in walked
        assert found.invoked_us == max(one.invoked_us for one in walked)


@given(settled_commits(), st.integers(0, 3))
def test_the_commits_of_an_offset_are_all_of_them(commits: list[tuple[SendOffsets, int | None]], offset: int):
    assert list(CommitsOfPlace(AT, commits).of(offset)) == [one for one, _ in commits if one.offsets[AT] == offset]
