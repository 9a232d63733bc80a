"""Jepsen's anomalies of Kafka and its kin, planted in small histories, with what each checker must say of them.

The names come from Jepsen's checker (jepsen.tests.kafka, https://github.com/jepsen-io/jepsen) and from its reports on
Redpanda 21.10.1 (https://jepsen.io/analyses/redpanda-21.10.1) and Bufstream 0.1.0
(https://jepsen.io/analyses/bufstream-0.1.0), whose torn transaction is Kafka's own protocol's (KAFKA-17754).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.unit.accountant.transaction_histories import Writer


class Planted(NamedTuple):
    """An anomaly.

    Attributes:
        write: writes a history that has it.
        found: how often the accountant finds what.
        seen: what the foreign checker finds, by Elle's names; nothing where its model has no place for it.
    """

    write: Callable[[Writer], None]
    found: dict[str, int]
    seen: frozenset[str] = frozenset()


def _committed(it: Writer, process: str, name: str, *records: tuple[int, str], partition: int = 0) -> None:
    for offset, value in records:
        it.send(process, name, value, offset, partition=partition)
    it.commit(process, name)


def _lost_write(it: Writer) -> None:
    """Acknowledged writes lost in a healthy cluster (Bufstream)."""
    _committed(it, "p", "x", (0, "a"))
    _committed(it, "p", "y", (2, "b"))
    _committed(it, "p", "z", (4, "c"))
    it.final((0, "a"), (4, "c"), end=6)


def _duplicate(it: Writer) -> None:
    """A record that was sent once is at two offsets (Redpanda)."""
    _committed(it, "p", "x", (0, "a"))
    it.final((0, "a"), (1, "a"), end=3)


def _aborted_read(it: Writer) -> None:
    """G1a: readers see records of an aborted transaction (Redpanda: the last stable offset as an inclusive bound)."""
    it.send("p", "x", "a", 0)
    it.abort("p", "x")
    it.poll("r", (0, "a"))


def _inconsistent_offsets(it: Writer) -> None:
    """One offset, two values (Redpanda: a leader that was paused and killed)."""
    _committed(it, "p", "x", (0, "a"))
    _committed(it, "q", "y", (2, "b"))
    it.poll("r", (0, "a"), (2, "b"))
    it.poll("s", (0, "b"))


def _g0(it: Writer) -> None:
    """G0: transactions write in opposite orders to two partitions, which Kafka permits."""
    it.send("p", "x", "a", 0)
    it.send("q", "y", "b", 1)
    it.send("q", "y", "c", 0, partition=1)
    it.send("p", "x", "d", 1, partition=1)
    it.commit("p", "x")
    it.commit("q", "y")
    it.final((0, "a"), (1, "b"), end=4)
    it.final((0, "c"), (1, "d"), end=4, partition=1)


def _g1c(it: Writer) -> None:
    """G1c: two transactions have read each other's records (Redpanda)."""
    it.send("p", "x", "a", 0)
    it.send("q", "y", "b", 0, partition=1)
    it.commit("p", "x")
    it.commit("q", "y")
    it.poll("p", (0, "b"), partition=1, transaction="x")
    it.poll("q", (0, "a"), transaction="y")


def _int_poll_skip(it: Writer) -> None:
    """Within a transaction a consumer goes past a committed record."""
    for number, (offset, value) in enumerate(((0, "a"), (2, "b"), (4, "c"))):
        _committed(it, "p", f"x{number}", (offset, value))
    it.poll("c", (0, "a"), transaction="y")
    it.poll("c", (4, "c"), transaction="y")
    it.send("c", "y", "image", 0, partition=1)
    it.commit("c", "y")
    it.final((0, "a"), (2, "b"), (4, "c"), end=6)
    it.final((0, "image"), end=2, partition=1)


def _poll_skip(it: Writer) -> None:
    """Between two polls a consumer goes past a committed record."""
    for number, (offset, value) in enumerate(((0, "a"), (2, "b"), (4, "c"))):
        _committed(it, "p", f"x{number}", (offset, value))
    it.poll("r", (0, "a"))
    it.poll("r", (4, "c"))
    it.final((0, "a"), (2, "b"), (4, "c"), end=6)


def _nonmonotonic_poll(it: Writer) -> None:
    """A consumer is given records again, without a new assignment (Kafka: a position after an abort, KAFKA-17582)."""
    _committed(it, "p", "x", (0, "a"))
    _committed(it, "p", "y", (2, "b"))
    it.poll("r", (0, "a"), (2, "b"))
    it.poll("r", (0, "a"))


def _nonmonotonic_send(it: Writer) -> None:
    """A producer's later record comes before an earlier one."""
    _committed(it, "p", "x", (3, "a"))
    _committed(it, "p", "y", (0, "b"))


def _unseen(it: Writer) -> None:
    """Readers stand still before an acknowledged record (Bufstream: stuck consumers)."""
    _committed(it, "p", "x", (0, "a"))
    _committed(it, "p", "y", (2, "b"))
    it.final((0, "a"), end=2)


def _precommitted_read(it: Writer) -> None:
    """A transaction reads what it has written itself, before its commit."""
    it.send("p", "x", "a", 0)
    it.poll("p", (0, "a"), transaction="x")
    it.commit("p", "x")


def _torn(it: Writer) -> None:
    """A delayed EndTxn ends the next transaction: half of it is committed (KAFKA-17754, found with Bufstream)."""
    it.send("p", "x", "a", 0)
    it.send("p", "x", "b", 0, partition=1)
    it.commit("p", "x")
    it.poll("final", (0, "a"), ends={"t-0": 2, "t-1": 2})


def _aborted_and_committed(it: Writer) -> None:
    """A delayed EndTxn commits a transaction that its client then aborts (KAFKA-17754)."""
    it.send("p", "x", "a", 0)
    it.commit("p", "x")
    it.abort("p", "x")


def _aborted_offsets(it: Writer) -> None:
    """A group's position that only an aborted transaction has committed."""
    it.send("p", "x", "a", 0)
    it.positions("p", "x", 7)
    it.abort("p", "x")
    it.found_positions("p", 7)


PLANTED: dict[str, Planted] = {
    "lost-write": Planted(_lost_write, {"lost-write": 1}, frozenset({"incompatible-order"})),
    "duplicate": Planted(_duplicate, {"duplicated": 1}, frozenset({"duplicate-elements"})),
    "aborted-read (G1a)": Planted(_aborted_read, {"aborted-read": 1}, frozenset({"G1a"})),
    "inconsistent-offsets": Planted(
        _inconsistent_offsets, {"inconsistent-offsets": 1, "duplicated": 1}, frozenset({"incompatible-order"})
    ),
    "G0, which Kafka permits": Planted(_g0, {}),
    "G1c": Planted(_g1c, {"circular-information-flow": 1}, frozenset({"G1c"})),
    "int-poll-skip": Planted(_int_poll_skip, {"poll-skip": 1}, frozenset({"incompatible-order"})),
    "poll-skip": Planted(_poll_skip, {"poll-skip": 1}, frozenset({"incompatible-order"})),
    "nonmonotonic-poll": Planted(_nonmonotonic_poll, {"nonmonotonic-poll": 1}, frozenset({"duplicate-elements"})),
    "nonmonotonic-send": Planted(_nonmonotonic_send, {"nonmonotonic-send": 1}),
    "unseen": Planted(_unseen, {"unseen": 1}),
    "precommitted-read": Planted(_precommitted_read, {"intermediate-read": 1}),
    "torn transaction": Planted(_torn, {"lost-write": 1, "torn-transaction": 1}, frozenset({"G-single-item"})),
    "both outcomes": Planted(_aborted_and_committed, {"two-outcomes": 1}),
    "aborted-offsets": Planted(_aborted_offsets, {"aborted-offsets": 1}),
}
