"""Judges a history of transactions; what it can't know it does not say.

Rules:
    1. A transaction is committed or aborted when its client has the response; aborted if no commit was asked for.
       Where the response to a commit is missing both are right, until a reader has seen one of its records.
    2. A record counts as written when its write was acknowledged. A write without a response may have happened, unless
       its transaction is aborted; one with a definite error has not.
    3. Missing records are judged by final polls alone, and only in the partitions that they name.
    4. Reads of uncommitted records break nothing but the order and the offsets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidegauge_lab.accountant.findings import Found
from tidegauge_lab.accountant.transactions.circles import circles
from tidegauge_lab.accountant.transactions.commits import CommitsOfPlace
from tidegauge_lab.accountant.transactions.findings import NOTES, Anomaly
from tidegauge_lab.accountant.transactions.model import (
    NO_PARTITION,
    End,
    Fate,
    Operation,
    Outcome,
    Place,
    Poll,
    Seen,
    Send,
    SendOffsets,
    Transactions,
    fate_of,
)

Slot = tuple[Place, int]
"""A partition and an offset in it."""


@dataclass(slots=True)
class Judgement:
    """The findings, and the checks that could not be made.

    Attributes:
        fates: how many transactions there are of each fate, after what readers have seen of the unknown ones.
        not_checked: which checks had nothing to go by, and why.
    """

    found: Found[Anomaly]
    operations: int
    fates: dict[Fate, int]
    not_checked: list[str]

    @property
    def is_clean(self) -> bool:
        """Whether no guarantee is broken."""
        return all(kind in NOTES for kind in self.found.counts)


def judge(history: Transactions) -> Judgement:
    """Do all checks."""
    judging = _Judging(history)
    judging.check()
    not_checked: list[str] = []
    if not any(poll.ends for poll in history.polls):
        not_checked.append("lost-write, unseen, torn-transaction: no final poll, which reads everything at the end")
    if not any(poll.is_committed for poll in history.polls):
        not_checked.append("aborted-read, intermediate-read: no poll with the isolation level read_committed")
    if not any(poll.transaction for poll in history.polls):
        not_checked.append("circular-information-flow: no poll within a transaction")
    if not history.read_offsets:
        not_checked.append("aborted-offsets, lost-offsets: no client has read a group's committed offsets")
    fates: dict[Fate, int] = {}
    for fate in judging.fates.values():
        fates[fate] = fates.get(fate, 0) + 1
    return Judgement(judging.found, history.operations, fates, not_checked)


class _Judging:
    def __init__(self, history: Transactions) -> None:
        self.found = Found[Anomaly]()
        self._history = history
        self._send_of = {send.value: send for send in history.sends}
        self._ends: dict[str, list[End]] = defaultdict(list)
        for end in history.ends:
            self._ends[end.transaction].append(end)
        names = {send.transaction for send in history.sends} | {one.transaction for one in history.send_offsets}
        known = (names | set(self._ends)) - {None}
        self.fates = {name: fate_of(self._ends.get(name, ())) for name in known if name is not None}
        self._reads_of: dict[str, dict[Slot, Seen]] = defaultdict(dict)
        self._committed_values: set[str] = set()
        for poll in self._responded():
            for seen in poll.records:
                self._reads_of[seen.value].setdefault((seen.place, seen.offset), seen)
                if poll.is_committed:
                    self._committed_values.add(seen.value)
        self._decide_by_reads()

    def _responded(self) -> list[Poll]:
        return [poll for poll in self._history.polls if poll.outcome is Outcome.OK]

    def _decide_by_reads(self) -> None:
        """Take an unknown transaction for committed if a reader of committed records has seen something of it."""
        for value in self._committed_values:
            send = self._send_of.get(value)
            if send is not None and send.transaction and self.fates[send.transaction] is Fate.UNKNOWN:
                self.fates[send.transaction] = Fate.COMMITTED

    def check(self) -> None:
        """Do all checks."""
        self._check_slots()
        self._check_isolation()
        self._check_outcomes()
        self._check_complete()
        self._check_order_of_polls()
        self._check_order_of_sends()
        self._check_circles()
        self._check_offsets()

    def _fate(self, operation: Send | SendOffsets) -> Fate:
        """Return the fate of an operation by its transaction; without one, by its own outcome."""
        if operation.outcome is Outcome.FAIL:
            return Fate.ABORTED
        if operation.transaction is not None:
            return self.fates[operation.transaction]
        return Fate.COMMITTED if operation.outcome is Outcome.OK else Fate.UNKNOWN

    # The places of values

    def _check_slots(self) -> None:
        at: dict[Slot, dict[str, None]] = defaultdict(dict)
        slots: dict[str, dict[Slot, None]] = defaultdict(dict)
        for send in self._history.sends:
            if send.outcome is Outcome.OK and send.offset is not None:
                at[send.place, send.offset][send.value] = None
                slots[send.value][send.place, send.offset] = None
        for value, places in self._reads_of.items():
            if value not in self._send_of:
                self.found.add(Anomaly.UNKNOWN_VALUE, f"{value!r} was read at {_slot(next(iter(places)))}")
            for slot in places:
                at[slot][value] = None
                slots[value][slot] = None
        for slot, values in sorted(at.items()):
            if len(values) > 1:
                words = " and ".join(repr(value) for value in sorted(values))
                self.found.add(Anomaly.INCONSISTENT_OFFSETS, f"{_slot(slot)} holds {words}")
        for value, where in slots.items():
            if len(where) > 1 and value in self._send_of:
                words = " and at ".join(_slot(slot) for slot in sorted(where))
                self.found.add(Anomaly.DUPLICATED, f"{value!r} is at {words}")

    # Isolation

    def _check_isolation(self) -> None:
        reported: set[tuple[Anomaly, str]] = set()
        for poll in self._responded():
            for seen in poll.records if poll.is_committed else ():
                send = self._send_of.get(seen.value)
                kind = None if send is None else self._broken_by(poll, send)
                if send is not None and kind is not None and (kind, seen.value) not in reported:
                    reported.add((kind, seen.value))
                    name = f", of transaction {send.transaction}" if send.transaction else ""
                    self.found.add(kind, f"{poll} was given {seen.value!r} at {_slot((seen.place, seen.offset))}{name}")

    def _broken_by(self, poll: Poll, send: Send) -> Anomaly | None:
        if self._fate(send) is Fate.ABORTED:
            return Anomaly.ABORTED_READ
        if send.transaction is None:
            return None
        asked_us = [end.invoked_us for end in self._ends[send.transaction] if end.is_commit]
        return Anomaly.INTERMEDIATE_READ if asked_us and poll.completed_us < min(asked_us) else None

    def _check_outcomes(self) -> None:
        for name, fate in self.fates.items():
            if fate is Fate.BOTH:
                self.found.add(Anomaly.TWO_OUTCOMES, f"transaction {name}")

    # Missing records

    def _finals(self) -> tuple[dict[Place, int], dict[Place, int], set[str]]:
        """Return the begins and ends of final polls in each partition, and their values."""
        begins: dict[Place, int] = {}
        ends: dict[Place, int] = {}
        given: set[str] = set()
        for poll in self._responded():
            if poll.ends and poll.is_committed:
                for place, end in poll.ends.items():
                    begin = poll.begins.get(place, 0)
                    begins[place] = min(begin, begins.get(place, begin))
                    ends[place] = max(end, ends.get(place, end))
                given |= {seen.value for seen in poll.records}
        return begins, ends, given

    def _check_complete(self) -> None:
        begins, ends, given = self._finals()
        missing: dict[str, list[Send]] = defaultdict(list)
        present: dict[str, list[Send]] = defaultdict(list)
        for send in self._history.sends:
            if not self._is_covered(send, begins, ends):
                continue
            is_given = send.value in given
            if send.transaction is not None and is_given:
                present[send.transaction].append(send)
            if is_given or send.outcome is not Outcome.OK or self._fate(send) is not Fate.COMMITTED:
                continue
            if send.transaction is not None:
                missing[send.transaction].append(send)
            is_beyond = send.offset is not None and send.offset >= ends[send.place]
            kind = Anomaly.UNSEEN if is_beyond else Anomaly.LOST
            where = "an offset that is not known" if send.offset is None else f"offset {send.offset}"
            self.found.add(
                kind,
                f"{send.value!r} was acknowledged at {where} of {send.place}; the final polls read up to "
                f"{ends[send.place]}",
            )
        for name, sends in missing.items():
            if present.get(name):
                self.found.add(
                    Anomaly.TORN,
                    f"of transaction {name} {present[name][0].value!r} is there and {sends[0].value!r} is not",
                )

    @staticmethod
    def _is_covered(send: Send, begins: dict[Place, int], ends: dict[Place, int]) -> bool:
        """Return whether final polls would show the record; always for an unknown partition."""
        if send.place.partition == NO_PARTITION:
            return True
        return send.place in ends and (send.offset is None or send.offset >= begins[send.place])

    # Order

    def _check_order_of_polls(self) -> None:
        slots = sorted(
            slot for value in self._committed_values for slot in self._reads_of[value] if self._is_committed(value)
        )
        by_place: dict[Place, list[int]] = defaultdict(list)
        for place, offset in slots:
            by_place[place].append(offset)
        for steps in _steps_of_processes(self._history):
            last: dict[Place, int] = {}
            for step in steps:
                if not isinstance(step, Poll):
                    last = {}
                    continue
                if step.ends:
                    last = {}
                for place, offset, value in step.records:
                    before = last.get(place)
                    last[place] = offset
                    if before is None:
                        continue
                    if offset <= before:
                        self.found.add(
                            Anomaly.READ_AGAIN, f"{step} was given {value!r} at {offset} of {place} after {before}"
                        )
                    elif step.is_committed:
                        offsets = by_place[place]
                        following = bisect_right(offsets, before)
                        if following < len(offsets) and offsets[following] < offset:
                            self.found.add(
                                Anomaly.SKIPPED,
                                f"{step} was given offset {offset} of {place} after {before}, not {offsets[following]}",
                            )

    def _is_committed(self, value: str) -> bool:
        send = self._send_of.get(value)
        return send is None or self._fate(send) is Fate.COMMITTED

    def _check_order_of_sends(self) -> None:
        latest: dict[tuple[str, Place], Send] = {}
        for send in sorted(self._history.sends, key=lambda one: (one.process, one.number)):
            if send.transaction is None or send.outcome is not Outcome.OK or send.offset is None:
                continue
            before = latest.get((send.process, send.place))
            if before is not None and before.offset is not None and before.offset > send.offset:
                self.found.add(
                    Anomaly.REORDERED,
                    f"{send} is at {send.offset} of {send.place}, {before} before it at {before.offset}",
                )
                continue
            latest[send.process, send.place] = send

    # Circles

    def _check_circles(self) -> None:
        reads: dict[str, dict[str, None]] = defaultdict(dict)
        for poll in self._responded():
            reader = poll.transaction
            if reader is None or not poll.is_committed:
                continue
            for seen in poll.records:
                send = self._send_of.get(seen.value)
                if send is not None and send.transaction not in {None, reader}:
                    reads[reader][send.transaction or ""] = None
        for circle in circles(reads):
            self.found.add(Anomaly.CIRCULAR, f"transactions {', '.join(sorted(circle))} have read each other's records")

    # Positions of groups

    def _check_offsets(self) -> None:
        commits = self._commits()
        for read in self._history.read_offsets:
            for place, offset in read.offsets.items() if read.outcome is Outcome.OK else ():
                known = commits.get((read.group, place))
                sources = () if known is None else known.of(offset)
                possible = [one for one in sources if self._fate(one) is not Fate.ABORTED]
                if sources and not possible:
                    self.found.add(
                        Anomaly.OFFSETS_OF_ABORTED, f"{read} found {offset} of {place} for group {read.group}"
                    )
                elif known is not None and sources and (newer := self._overtaken(read, possible, known)) is not None:
                    self.found.add(
                        Anomaly.OFFSETS_LOST,
                        f"{read} found {offset} of {place} for group {read.group}; {newer} had committed "
                        f"{newer.offsets[place]} after it",
                    )

    def _overtaken(self, read: Operation, sources: Sequence[SendOffsets], known: CommitsOfPlace) -> SendOffsets | None:
        """Return a commit that took effect after all possible sources, and before the read."""
        newest = known.newest(read.invoked_us)
        is_after = newest is not None and all(self._over_us(source) < newest.invoked_us for source in sources)
        return newest if is_after else None

    def _commits(self) -> dict[tuple[str, Place], CommitsOfPlace]:
        """Return the commits of each group and partition."""
        commits: dict[tuple[str, Place], list[tuple[SendOffsets, int | None]]] = defaultdict(list)
        for one in self._history.send_offsets:
            settled_us = self._settled_us(one)
            for place in one.offsets:
                commits[one.group, place].append((one, settled_us))
        return {at: CommitsOfPlace(at[1], known) for at, known in commits.items()}

    def _settled_us(self, one: SendOffsets) -> int | None:
        """Return when positions were acknowledged as committed; None: they were not."""
        if one.outcome is not Outcome.OK:
            return None
        if one.transaction is None:
            return one.completed_us
        if self.fates[one.transaction] is not Fate.COMMITTED:
            return None
        ok = [end.completed_us for end in self._ends[one.transaction] if end.is_commit and end.outcome is Outcome.OK]
        return max(ok, default=None)

    def _over_us(self, one: SendOffsets) -> float:
        """Return the latest time at which positions could take effect; infinity if unknown."""
        settled_us = self._settled_us(one)
        return float("inf") if settled_us is None else settled_us


def _steps_of_processes(history: Transactions) -> Iterator[list[Operation]]:
    """Yield the polls and assignments of each process, in order."""
    steps: dict[str, list[Operation]] = defaultdict(list)
    for poll in history.polls:
        if poll.outcome is Outcome.OK:
            steps[poll.process].append(poll)
    for assign in history.assigns:
        steps[assign.process].append(assign)
    for _, operations in sorted(steps.items()):
        yield sorted(operations, key=lambda one: one.number)


def _slot(slot: Slot) -> str:
    place, offset = slot
    return f"{place} offset {offset}"
