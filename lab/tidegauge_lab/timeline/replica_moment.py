"""One partition and each of its replicas at a moment of the past, as far as events say. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tidegauge_lab.timeline.choice import Event

Json = dict[str, Any]
_Log = tuple[int, int, int, "int | None", "list[tuple[int, int]]"]


class PartitionMoment:
    """One partition.

    Attributes:
        leader: None while there is none, or none is known.
        leader_epoch: None while no event has named a leader.
        partition_epoch: of the ISR that a leader reported last; -1 before.
        isr: None if it is not known.
        elr: eligible leader replicas (KIP-966).
        last_known_leader: the last leader, while there is none.
        assigned: brokers that hold a replica, by id.
        replicas: their known state, by broker.
    """

    __slots__ = (
        "assigned", "elr", "isr", "last_known_leader", "leader", "leader_epoch", "partition_epoch", "replicas",
    )  # fmt: skip

    def __init__(self) -> None:
        self.leader: int | None = None
        self.leader_epoch: int | None = None
        self.partition_epoch = -1
        self.isr: list[int] | None = None
        self.elr: list[int] = []
        self.last_known_leader: list[int] = []
        self.assigned: list[int] = []
        self.replicas: dict[int, ReplicaMoment] = {}


class ReplicaMoment:
    """One replica.

    Attributes:
        role: ``leader``, ``follower``, ``offline``, or ``unknown``.
        leader_epoch: of that role.
        incarnation: of its broker, when it took that role; -1 before.
        log_start: inclusive; these three are None if no event says.
        high_watermark: exclusive.
        log_end: exclusive.
        is_stable_known: whether ``held_stable`` says where readers of committed records end.
        held_stable: the last stable offset where transactions hold it below the high watermark; None: nothing does.
        epochs: entries of the epoch cache, ``(epoch, start offset)``, as far as known.
    """

    __slots__ = (
        "epochs", "held_stable", "high_watermark", "incarnation", "is_stable_known", "leader_epoch", "log_end",
        "log_start", "role",
    )  # fmt: skip

    def __init__(self) -> None:
        self.role = "unknown"
        self.leader_epoch: int | None = None
        self.incarnation = -1
        self.log_start: int | None = None
        self.high_watermark: int | None = None
        self.log_end: int | None = None
        self.is_stable_known = False
        self.held_stable: int | None = None
        self.epochs: list[tuple[int, int]] = []

    @property
    def shown_log_end(self) -> int | None:
        """The log end offset; None if the known one is below the high watermark, which can't be."""
        if self.log_end is None or (self.high_watermark is not None and self.high_watermark > self.log_end):
            return None
        return self.log_end

    @property
    def last_stable_offset(self) -> int | None:
        """Where readers of committed records end; None if that is not known."""
        if not self.is_stable_known or self.high_watermark is None:
            return None
        return self.high_watermark if self.held_stable is None else min(self.held_stable, self.high_watermark)

    def view(self, *, in_isr: bool | None, held: bool, old: bool) -> Json:
        """Return it in the form of the page."""
        base: Json = {"isr": in_isr, "held": held, "keptBy": None, "old": old, "role": self.role}
        if self.role in {"unknown", "offline"} and self.log_end is None:
            return base
        return base | {
            "epoch": self.leader_epoch,
            "logStart": self.log_start,
            "hw": self.high_watermark,
            "lso": self.last_stable_offset,
            "leo": self.shown_log_end,
            "epochs": list(self._spans()),
            "bytes": None,
            "knows": {},
        }

    def _spans(self) -> Iterator[list[int]]:
        """Each epoch with its first offset and its end; none if the log's ends are not known."""
        if self.shown_log_end is None or self.log_start is None:
            return
        starts = [max(start, self.log_start) for _, start in self.epochs]
        for (epoch, _), start, end in zip(self.epochs, starts, [*starts, self.shown_log_end][1:], strict=True):
            yield [epoch, start, max(start, end)]

    # Reading events

    @staticmethod
    def log_in(event: Event) -> _Log | None:
        """Return the log of a ``role`` event; None if it has none.

        Raises:
            TypeError, ValueError: it is of another version.
        """
        if "log_end_offset" not in event:
            return None
        stable = event.get("last_stable_offset")
        return (
            int(event["log_start_offset"]),
            int(event["high_watermark"]),
            int(event["log_end_offset"]),
            None if stable is None else int(stable),
            [(int(epoch), int(start)) for epoch, start in event["epochs"]],
        )

    def take_role(self, role: str, leader_epoch: int, incarnation: int, log: _Log | None) -> None:
        """Take a role; one in a new incarnation without a word of the log leaves it unknown."""
        if log is None and role != "offline" and incarnation != self.incarnation:
            self.log_start = self.high_watermark = self.log_end = self.held_stable = None
            self.is_stable_known, self.epochs = False, []
        self.role, self.leader_epoch, self.incarnation = role, leader_epoch, incarnation
        if log is not None:
            self.log_start, self.high_watermark, self.log_end, stable, self.epochs = log
            self.is_stable_known = stable is not None
            self.held_stable = stable if stable is not None and stable < self.high_watermark else None

    @staticmethod
    def change_in(event: Event) -> Callable[[ReplicaMoment], None]:
        """Return what an event about a log does to its replica.

        Raises:
            KeyError, TypeError, ValueError: it is of another version.
        """
        kind = event["kind"]
        if kind == "epoch":
            epoch, start = int(event["leader_epoch"]), int(event["start_offset"])
            return lambda replica: replica._epoch(epoch, start)  # noqa: SLF001 - of this class
        old, new = int(event["old"]), int(event["new"])
        if kind == "truncation":
            log_start = event.get("log_start_offset")
            return lambda replica: replica._truncated(old, new, log_start)  # noqa: SLF001 - of this class
        if kind == "last_stable_offset":
            held = new if new < int(event["high_watermark"]) else None
            return lambda replica: replica._stable(held)  # noqa: SLF001 - of this class
        if kind == "log_start_offset":
            return lambda replica: replica._log_starts_at(new)  # noqa: SLF001 - of this class
        name = {"high_watermark": "high_watermark", "log_end_offset": "log_end"}[kind]
        return lambda replica: setattr(replica, name, new)

    def _epoch(self, epoch: int, start: int) -> None:
        """Add an entry; it replaces what contradicts it (LeaderEpochFileCache.assign)."""
        self.epochs = [one for one in self.epochs if one[0] < epoch and one[1] < start]
        self.epochs.append((epoch, start))

    def _truncated(self, old: int, new: int, log_start: int | None) -> None:
        begins_again = new >= old or log_start == new
        self.log_end = new
        if log_start is not None:
            self.log_start = log_start
        if self.high_watermark is not None:
            self.high_watermark = min(self.high_watermark, new)
        if self.held_stable is not None:  # no event says which transactions are left
            self.held_stable, self.is_stable_known = None, False
        self.epochs = [] if begins_again else [one for one in self.epochs if one[1] < new]

    def _stable(self, held: int | None) -> None:
        self.held_stable, self.is_stable_known = held, True

    def _log_starts_at(self, offset: int) -> None:
        self.log_start = offset
        while len(self.epochs) > 1 and self.epochs[1][1] <= offset:
            del self.epochs[0]
