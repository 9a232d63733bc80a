"""The judge of transactions against a dumb twin, which compares every line of a history with every other."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from transaction_histories import Writer

KINDS = ("ok", "ok", "ok", "fail", "info", "none")


def random_history(random: Random) -> Writer:
    """Return a history of a few transactions in which everything may be wrong."""
    history = Writer()
    values: list[str] = []
    for number in range(random.randrange(1, 5)):
        process = random.choice("pq")
        name = f"{process}{number}"
        for _ in range(random.randrange(3)):
            values.append(f"v{len(values)}")
            transaction = name if random.random() < 0.8 else None
            history.send(
                process, transaction, values[-1], random.randrange(8), random.choice(KINDS), random.randrange(2)
            )
        if random.random() < 0.5:
            read_some(history, random, values, name if random.random() < 0.5 else None, process)
        for _ in range(random.choice((0, 1, 1, 2))):
            op = random.choice(("commit", "commit", "abort"))
            history.commit(process, name, random.choice(KINDS), op)
        if random.random() < 0.5:
            read_some(history, random, values, None, "r")
    if random.random() < 0.8:
        for partition in range(random.randrange(1, 3)):
            rows = [(random.randrange(8), value) for value in values if random.random() < 0.6]
            history.final(*rows, end=random.randrange(9), partition=partition, begin=random.randrange(2))
    return history


def read_some(history: Writer, random: Random, values: list[str], transaction: str | None, process: str) -> None:
    rows = [(random.randrange(8), value) for value in values if random.random() < 0.4]
    isolation = random.choice(("read_committed", "read_committed", "read_uncommitted"))
    history.poll(process, *rows, partition=random.randrange(2), transaction=transaction, isolation=isolation)


class Twin:
    """The same rules, read off the lines of the history, with no index and no cleverness."""

    def __init__(self, lines: list[dict]) -> None:
        self.ops = []
        for line in lines:
            if line["type"] == "invoke":
                key = line["process"], line["number"]
                ends = [one for one in lines if one["type"] != "invoke" and (one["process"], one["number"]) == key]
                end = ends[0] if ends else {"type": "info", "time_us": None}
                self.ops.append(dict(line, kind=end["type"], result=end))
        self.sends = [op for op in self.ops if op["op"] == "send"]
        self.polls = [op for op in self.ops if op["op"] == "poll" and op["kind"] == "ok"]

    def is_committed_poll(self, poll: dict) -> bool:
        return poll.get("isolation", "read_committed") == "read_committed"

    def ends_of(self, name: str) -> list[dict]:
        return [op for op in self.ops if op["op"] in {"commit", "abort"} and op["transaction"] == name]

    def fate(self, name: str) -> str:
        ends = self.ends_of(name)
        committed = [op for op in ends if op["op"] == "commit" and op["kind"] == "ok"]
        aborted = [op for op in ends if op["op"] == "abort" and op["kind"] == "ok"]
        if committed and aborted:
            return "both"
        if committed:
            return "committed"
        if aborted or not [op for op in ends if op["op"] == "commit" and op["kind"] != "fail"]:
            return "aborted"
        for poll in self.polls:
            for *_, value in poll["result"]["records"]:
                seen = [op for op in self.sends if op["value"] == value and op["transaction"] == name]
                if seen and self.is_committed_poll(poll):
                    return "committed"
        return "unknown"

    def fate_of_send(self, send: dict) -> str:
        if send["kind"] == "fail":
            return "aborted"
        if send["transaction"] is not None:
            return self.fate(send["transaction"])
        return "committed" if send["kind"] == "ok" else "unknown"

    def slots(self) -> set[tuple[str, int, int]]:
        found = {(op["value"], op["partition"], op["result"]["offset"]) for op in self.sends if op["kind"] == "ok"}
        for poll in self.polls:
            found |= {(value, partition, offset) for _, partition, offset, value in poll["result"]["records"]}
        return found

    def counts(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        slots = self.slots()
        places = {(partition, offset) for _, partition, offset in slots}
        for place in places:
            counts["inconsistent-offsets"] += len({value for value, *at in slots if tuple(at) == place}) > 1
        for value in {value for value, *_ in slots}:
            counts["duplicated"] += len({tuple(at) for other, *at in slots if other == value}) > 1
        for send in self.sends:
            counts += self.isolation(send)
        for name in {op["transaction"] for op in self.ops if op.get("transaction") and op["op"] != "poll"}:
            counts["two-outcomes"] += self.fate(name) == "both"
        counts += self.missing()
        counts += self.polls_in_order()
        counts += self.sends_in_order()
        counts["circular-information-flow"] += self.circles()
        return +counts

    def isolation(self, send: dict) -> Counter[str]:
        found: set[str] = set()
        for poll in self.polls:
            given = [value for *_, value in poll["result"]["records"]]
            if not self.is_committed_poll(poll) or send["value"] not in given:
                continue
            if self.fate_of_send(send) == "aborted":
                found.add("aborted-read")
            elif send["transaction"] is not None:
                commits = [op for op in self.ends_of(send["transaction"]) if op["op"] == "commit"]
                if commits and all(poll["result"]["time_us"] < op["time_us"] for op in commits):
                    found.add("intermediate-read")
        return Counter(found)

    def missing(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        finals = [poll for poll in self.polls if poll["result"].get("ends")]
        given = {value for poll in finals for *_, value in poll["result"]["records"]}
        torn: dict[str, list[set[str]]] = {}
        for send in self.sends:
            name = f"t-{send['partition']}"
            reads = [poll["result"] for poll in finals if name in poll["result"]["ends"]]
            if not reads:
                continue
            begin = min(one["begins"][name] for one in reads)
            end = max(one["ends"][name] for one in reads)
            offset = send["result"].get("offset")
            if offset is not None and offset < begin:
                continue
            present, absent = torn.setdefault(send["transaction"] or "", [set(), set()])
            if send["value"] in given:
                present.add(send["value"])
            elif send["kind"] == "ok" and self.fate_of_send(send) == "committed":
                absent.add(send["value"])
                counts["unseen" if offset >= end else "lost-write"] += 1
        counts["torn-transaction"] = sum(bool(name and both[0] and both[1]) for name, both in torn.items())
        return counts

    def polls_in_order(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        committed = {
            (partition, offset)
            for poll in self.polls
            for _, partition, offset, value in poll["result"]["records"]
            if any(
                value == row[3]
                for other in self.polls
                if self.is_committed_poll(other)
                for row in other["result"]["records"]
            )
            and [send for send in self.sends if send["value"] == value and self.fate_of_send(send) == "committed"]
        }
        for process in {poll["process"] for poll in self.polls}:
            rows: list[tuple[int, int, bool]] = []
            for poll in [one for one in self.polls if one["process"] == process]:
                if poll["result"].get("ends"):
                    rows = []
                for _, partition, offset, _ in poll["result"]["records"]:
                    before = [row for row in rows if row[0] == partition]
                    rows.append((partition, offset, self.is_committed_poll(poll)))
                    if not before:
                        continue
                    last = before[-1][1]
                    if offset <= last:
                        counts["nonmonotonic-poll"] += 1
                    elif self.is_committed_poll(poll):
                        counts["poll-skip"] += any(p == partition and last < o < offset for p, o in committed)
        return counts

    def sends_in_order(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for process in "pq":
            for partition in range(2):
                highest = -1
                for send in self.sends:
                    is_there = send["kind"] == "ok" and send["transaction"] is not None
                    if is_there and (send["process"], send["partition"]) == (process, partition):
                        counts["nonmonotonic-send"] += send["result"]["offset"] < highest
                        highest = max(highest, send["result"]["offset"])
        return counts

    def circles(self) -> int:
        edges = {
            (poll["transaction"], send["transaction"])
            for poll in self.polls
            if poll.get("transaction") and self.is_committed_poll(poll)
            for *_, value in poll["result"]["records"]
            for send in self.sends
            if send["value"] == value and send["transaction"] not in {None, poll["transaction"]}
        }
        names = {name for edge in edges for name in edge}
        reached = {
            (a, b)
            for a, b in permutations(names, 2)
            if any(
                all(pair in edges for pair in zip((a, *path), (*path, b), strict=True))
                for length in range(len(names))
                for path in permutations(names - {a, b}, length)
            )
        }
        groups = {frozenset({a} | {b for b in names if {(a, b), (b, a)} <= reached}) for a in names}
        return sum(len(group) > 1 for group in groups)


@given(st.integers(0, 10**9))
def test_the_twin_finds_the_same(tmp_path_factory, seed):
    history = random_history(Random(seed))
    directory = tmp_path_factory.getbasetemp()
    found = history.kinds(directory)
    assert Counter(found) == Twin(history.lines).counts(), history.text()
