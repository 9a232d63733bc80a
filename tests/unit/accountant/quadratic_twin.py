"""The accountant's rules once more, as plainly as they can be said: every record against every other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tidegauge_client.sent_record import SentRecord
from tidegauge_lab.accountant.books import CommittedLog, KeptRecord, Kind, Mark

Slot = tuple[int, int]
"""Partition and offset."""


def fits(record: SentRecord, slot: Slot, kept: KeptRecord) -> bool:
    """Whether a record that is not at its acknowledged place may be this one."""
    same = (record.key, record.value, record.timestamp_ms) == (kept.key, kept.value, kept.timestamp_ms)
    return same and (record.is_acknowledged or record.partition in {-1, slot[0]})


def rank(record: SentRecord, slot: Slot, logs: Sequence[CommittedLog]) -> tuple[int, bool]:
    is_deleted = any(record.partition == log.partition and record.offset < log.log_start_offset for log in logs)
    level = (3 if is_deleted else 0) if record.is_acknowledged else 2 if record.outcome == "fail" else 1
    return level, record.is_acknowledged or record.partition != slot[0]


def place_all(sent: Sequence[SentRecord], logs: Sequence[CommittedLog]) -> tuple[dict[int, Slot], Counter[Kind]]:
    """Return the place of each record, and the findings by places."""
    kept = {(log.partition, record.offset): record for log in logs for record in log.records}
    places: dict[int, Slot] = {}
    counts: Counter[Kind] = Counter()
    for is_timed in (True, False):
        for index, record in enumerate(sent):
            slot = (record.partition, record.offset)
            there = kept.get(slot)
            is_free = there is not None and index not in places and slot not in places.values()
            is_equal = is_free and (there.key, there.value) == (record.key, record.value)
            if is_equal and record.is_acknowledged and (not is_timed or there.timestamp_ms == record.timestamp_ms):
                places[index] = slot
    for slot, there in sorted(kept.items()):
        if slot in places.values():
            continue
        candidates = [i for i, record in enumerate(sent) if i not in places and fits(record, slot, there)]
        if candidates:
            index = min(candidates, key=lambda i: (rank(sent[i], slot, logs), i))
            places[index] = slot
            if sent[index].outcome == "fail":
                counts[Kind.KEPT_THOUGH_FAILED] += 1
            elif sent[index].is_acknowledged:
                counts[Kind.MISPLACED] += 1
        elif any((sent[i].key, sent[i].value) == (there.key, there.value) for i in places):
            counts[Kind.DUPLICATED] += 1
        else:
            counts[Kind.PHANTOM] += 1
    return places, counts


def uncertain(sent: Sequence[SentRecord], logs: Sequence[CommittedLog]) -> set[int]:
    """Return the records whose place may belong to an equal record."""
    kept = {(log.partition, record.offset): record for log in logs for record in log.records}
    places, _ = place_all(sent, logs)

    def is_at_home(index: int) -> bool:
        slot = (sent[index].partition, sent[index].offset)
        there = kept.get(slot)
        content = sent[index].key, sent[index].value
        return sent[index].is_acknowledged and there is not None and content == (there.key, there.value)

    homes = Counter((record.partition, record.offset) for i, record in enumerate(sent) if is_at_home(i))
    settled = {i for i, slot in places.items() if is_at_home(i) and slot == (sent[i].partition, sent[i].offset)}
    free = [slot for slot in kept if slot not in {places[i] for i in settled}]
    found = {i for i in range(len(sent)) if is_at_home(i) and homes[sent[i].partition, sent[i].offset] > 1}
    for index in places.keys() - settled:
        slots = [slot for slot in free if fits(sent[index], slot, kept[slot])]
        rivals = [
            i
            for i, record in enumerate(sent)
            if i not in settled and record.outcome != "fail" and fits(record, places[index], kept[places[index]])
        ]
        if slots != [places[index]] or rivals != [index]:
            found.add(index)
    return found


def innocent_orders(sent: Sequence[SentRecord], logs: Sequence[CommittedLog]) -> bool:
    """Whether the log may be explained so that no record comes before one that it should follow.

    Tries every way in which as many records of the log as possible are explained: one at its own offset is there.
    """
    kept = {(log.partition, record.offset): record for log in logs for record in log.records}
    slots = sorted(kept)

    def is_home(index: int, slot: Slot) -> bool:
        record, there = sent[index], kept[slot]
        is_there = record.is_acknowledged and slot == (record.partition, record.offset)
        return is_there and (record.key, record.value) == (there.key, there.value)

    def ways(at: int, taken: dict[int, Slot]) -> Iterator[dict[int, Slot]]:
        if at == len(slots):
            yield dict(taken)
            return
        slot = slots[at]
        homes = [i for i in range(len(sent)) if is_home(i, slot)]
        others = [
            i
            for i, record in enumerate(sent)
            if record.outcome != "fail" and fits(record, slot, kept[slot]) and not any(is_home(i, s) for s in slots)
        ]
        for index in homes or others:
            if index not in taken:
                yield from ways(at + 1, {**taken, index: slot})
        if not homes:
            yield from ways(at + 1, taken)

    found = list(ways(0, {}))
    most = max(map(len, found))
    return any(not any(_disorder(sent, places)) for places in found if len(places) == most)


def _disorder(sent: Sequence[SentRecord], places: Mapping[int, Slot]) -> Iterator[bool]:
    for one, (partition, offset) in places.items():
        for other, (there, at) in places.items():
            earlier, later = sent[other], sent[one]
            if there == partition and at >= offset and one != other:
                yield earlier.producer == later.producer and earlier.number < later.number
                yield earlier.is_acknowledged and earlier.completed_us < later.invoked_us


def count_all(sent: Sequence[SentRecord], logs: Sequence[CommittedLog]) -> Counter[Kind]:
    """All findings that a history and committed logs give, by kind."""
    places, counts = place_all(sent, logs)
    by_partition = {log.partition: log for log in logs}
    unordered = uncertain(sent, logs)
    for index, record in enumerate(sent):
        log = by_partition.get(record.partition)
        if index not in places and record.is_acknowledged and log is not None:
            if record.offset >= log.high_watermark:
                counts[Kind.LOST_TAIL] += 1
            elif record.offset >= log.log_start_offset:
                counts[Kind.LOST] += 1
        if index not in places or record.outcome == "fail" or index in unordered:
            continue
        others = [
            (other, places[i][1])
            for i, other in enumerate(sent)
            if i in places and i not in unordered and other.outcome != "fail" and places[i][0] == places[index][0]
        ]
        mine = places[index][1]
        if any(o.producer == record.producer and o.number < record.number and at > mine for o, at in others):
            counts[Kind.REORDERED] += 1
        if any(o.is_acknowledged and o.completed_us < record.invoked_us and at > mine for o, at in others):
            counts[Kind.REORDERED_IN_REAL_TIME] += 1
    return +counts


def differing_offsets(one: Sequence[Mark], other: Sequence[Mark], begin: int, end: int) -> set[int]:
    """Offsets that do not lie in the same stretch of both logs."""
    different = set()
    for offset in range(begin, end):
        ours = [mark for mark in one if mark.base_offset <= offset < mark.next_offset]
        theirs = [mark for mark in other if mark.base_offset <= offset < mark.next_offset]
        if ours != theirs:
            different.add(offset)
    return different
