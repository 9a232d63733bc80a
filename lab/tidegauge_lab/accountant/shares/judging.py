"""Judges a history of share groups: deliveries, their counts and members, and broken guarantees.

Rules:
    1. An acceptance or a rejection that was acknowledged (``ok``) ends a record for its group, until the group's offset
       is altered. A fetch that began later must not give it; one that ran at that time may have been first.
    2. An acknowledgement without an outcome, or with an error, says nothing: the record may be given again or not.
    3. A record before the last start offset that was read must have been given to a member, if the group began at or
       before it. A fetch without an outcome may have been given it; who is given nothing else lets a record reach its
       delivery limit in as many fetches as that allows, so that with fewer of them the rule holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from tidegauge_lab.accountant.findings import Found
from tidegauge_lab.accountant.shares.findings import NOTES, Breach
from tidegauge_lab.accountant.shares.model import (
    Acknowledge,
    Acquire,
    AlterOffsets,
    Given,
    ReadStarts,
    Said,
    Says,
    ShareHistory,
    may_lie_between,
)
from tidegauge_lab.accountant.transactions.model import Outcome, Place

LEAST_LIMIT = 2
"""The lowest share.delivery.count.limit that Kafka allows (group.share.min.delivery.count.limit)."""


class _Record(NamedTuple):
    """A record as one group has it."""

    group: str
    place: Place
    offset: int

    def __str__(self) -> str:
        return f"offset {self.offset} of {self.place} in group {self.group}"


class _Delivery(NamedTuple):
    fetch: Acquire
    given: Given


class _End(NamedTuple):
    said: Says
    by: Acknowledge


@dataclass(slots=True)
class MemberAccount:
    """Deliveries to one process and its acknowledgements, in records; only acknowledged ones count as said."""

    given: int = 0
    accepted: int = 0
    released: int = 0
    rejected: int = 0


@dataclass(slots=True)
class GroupAccount:
    """Deliveries to a group.

    Attributes:
        records: different ones.
        deliveries: of all of them.
        times: how many records were given so often.
        after_release: deliveries after a release that was acknowledged.
        after_silence: other deliveries beyond the first: the lock had ended, the connection closed, or the leader died.
        ended: records by what ended them.
    """

    records: int = 0
    deliveries: int = 0
    times: Counter[int] = field(default_factory=Counter[int])
    after_release: int = 0
    after_silence: int = 0
    ended: Counter[Says] = field(default_factory=Counter[Says])


@dataclass(slots=True)
class ShareJudgement:
    """The result of judging a history."""

    operations: int
    found: Found[Breach] = field(default_factory=Found[Breach])
    groups: dict[str, GroupAccount] = field(default_factory=dict[str, GroupAccount])
    members: dict[str, MemberAccount] = field(default_factory=dict[str, MemberAccount])
    not_checked: list[str] = field(default_factory=list[str])

    @property
    def is_clean(self) -> bool:
        """Whether no guarantee is broken."""
        return all(kind in NOTES for kind in self.found.counts)


def judge_shares(history: ShareHistory) -> ShareJudgement:
    """Judge a history."""
    return _Judging(history).judged()


class _Judging:
    def __init__(self, history: ShareHistory) -> None:
        self._history = history
        self._result = ShareJudgement(history.operations)
        self._found = self._result.found
        self._deliveries: dict[_Record, list[_Delivery]] = {}
        self._ends: dict[_Record, list[_End]] = {}
        self._releases: dict[_Record, list[Acknowledge]] = {}
        for fetch in history.acquires:
            for given in fetch.records:
                record = _Record(fetch.group, given.place, given.offset)
                self._deliveries.setdefault(record, []).append(_Delivery(fetch, given))
        for word in history.acknowledges:
            for said in word.records if word.outcome is Outcome.OK else ():
                self._take_said(word, said)

    def _take_said(self, word: Acknowledge, said: Said) -> None:
        record = _Record(word.group, said.place, said.offset)
        if said.says.is_final:
            self._ends.setdefault(record, []).append(_End(said.says, word))
        elif said.says is Says.RELEASE:
            self._releases.setdefault(record, []).append(word)

    def judged(self) -> ShareJudgement:
        self._again()
        self._two_ends()
        self._values()
        self._limits()
        self._starts()
        self._passed_over()
        self._accounts()
        return self._result

    # Rule 1

    def _alterations(self, record: _Record) -> Iterator[AlterOffsets]:
        for one in self._history.alterations:
            if one.group == record.group and record.place in one.offsets:
                yield one

    def _is_altered(self, record: _Record, after_us: int, before_us: int) -> bool:
        return any(may_lie_between(one, after_us, before_us) for one in self._alterations(record))

    def _again(self) -> None:
        for record, ends in self._ends.items():
            for fetch, given in self._deliveries.get(record, ()):
                before = [end for end in ends if end.by.completed_us < fetch.invoked_us]
                if not before:
                    continue
                end = max(before, key=lambda one: one.by.completed_us)
                if self._is_altered(record, end.by.invoked_us, fetch.completed_us):
                    continue
                kind = Breach.ACCEPTED_AGAIN if end.said is Says.ACCEPT else Breach.REJECTED_AGAIN
                words = f"{given.value!r}, {record}: {end.said.value} of {end.by.process} was acknowledged before"
                self._found.add(kind, f"{words} {fetch.process} began the fetch that was given it")

    def _two_ends(self) -> None:
        for record, ends in self._ends.items():
            ordered = sorted(ends, key=lambda end: end.by.completed_us)
            for one, two in pairwise(ordered):
                if not self._is_altered(record, one.by.invoked_us, two.by.completed_us):
                    words = f"{record}: {one.said.value} of {one.by.process}, then {two.said.value} of {two.by.process}"
                    self._found.add(Breach.TWO_ENDS, words)

    # Values and counts

    def _values(self) -> None:
        sent = {one.value for one in self._history.sends}
        values: dict[tuple[Place, int], set[str]] = {}
        for record, deliveries in self._deliveries.items():
            for _, given in deliveries:
                values.setdefault((record.place, record.offset), set()).add(given.value)
                if sent and given.value not in sent:
                    self._found.add(Breach.UNKNOWN_VALUE, f"{given.value!r}, {record}")
        for (place, offset), them in values.items():
            if len(them) > 1:
                shown = " and ".join(sorted(map(repr, them)))
                self._found.add(Breach.TWO_VALUES, f"offset {offset} of {place}: {shown}")
        if not sent:
            self._result.not_checked.append("passed-over, unknown-value: no send")

    def _limits(self) -> None:
        for record, deliveries in self._deliveries.items():
            for fetch, given in deliveries:
                if fetch.limit is not None and given.delivery_count is not None and given.delivery_count > fetch.limit:
                    words = f"{given.value!r}, {record}: delivery {given.delivery_count} of at most {fetch.limit}"
                    self._found.add(Breach.BEYOND_LIMIT, words)

    # Start offsets; rule 3

    def _starts(self) -> None:
        last: dict[tuple[str, Place], tuple[int, ReadStarts]] = {}
        for read in self._history.starts:
            for place, offset in read.offsets.items():
                before = last.get((read.group, place))
                if before is not None and before[1].completed_us > read.invoked_us:
                    continue  # they ran at the same time
                record = _Record(read.group, place, offset)
                if (
                    before is not None
                    and offset < before[0]
                    and not self._is_altered(record, before[1].invoked_us, read.completed_us)
                ):
                    words = f"group {read.group} at {place}: {before[0]}, then {offset}"
                    self._found.add(Breach.START_BACK, words)
                last[read.group, place] = offset, read

    def _passed_over(self) -> None:
        ends = {(read.group, place): offset for read in self._history.starts for place, offset in read.offsets.items()}
        sent = {(one.place, one.offset): one.value for one in self._history.sends if one.offset is not None}
        if not ends or not sent:
            return
        unknown = Counter(one.group for one in self._history.acquires if one.outcome is not Outcome.OK)
        for (group, place), end in ends.items():
            begins = [one.offsets[place] for one in self._alterations(_Record(group, place, 0))]
            limits = [one.limit for one in self._history.acquires if one.group == group and one.limit is not None]
            is_unknown = unknown[group] >= min(limits, default=LEAST_LIMIT)
            if is_unknown or not begins:
                why = "fetches without an outcome" if is_unknown else "no alter-offsets gives its first offset"
                self._result.not_checked.append(f"passed-over of group {group} at {place}: {why}")
                continue
            for (at, offset), value in sent.items():
                record = _Record(group, place, offset)
                if at == place and max(begins) <= offset < end and record not in self._deliveries:
                    self._found.add(Breach.PASSED_OVER, f"{value!r}, {record}; the start offset is {end}")

    # Statements about every history

    def _accounts(self) -> None:
        result = self._result
        for record, deliveries in self._deliveries.items():
            group = result.groups.setdefault(record.group, GroupAccount())
            group.records += 1
            group.deliveries += len(deliveries)
            group.times[len(deliveries)] += 1
            for before, after in pairwise(deliveries):
                is_released = any(
                    one.process == before.fetch.process and one.invoked_us < after.fetch.completed_us
                    and one.completed_us >= before.fetch.invoked_us
                    for one in self._releases.get(record, ())
                )  # fmt: skip
                group.after_release += is_released
                group.after_silence += not is_released
            for fetch, _ in deliveries:
                result.members.setdefault(fetch.process, MemberAccount()).given += 1
            if record in self._ends:
                group.ended[self._ends[record][0].said] += 1
        for word in self._history.acknowledges:
            account = result.members.setdefault(word.process, MemberAccount())
            for said in word.records if word.outcome is Outcome.OK else ():
                account.accepted += said.says is Says.ACCEPT
                account.released += said.says is Says.RELEASE
                account.rejected += said.says is Says.REJECT
