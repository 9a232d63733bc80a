"""States as values: what one broker, the controller and the messages between them are, so that they can be compared.

Contract: two brokers with equal values do the same for ever, under any events; ``freeze`` leaves nothing out
that their core or their disk may still act on. It does leave out times (more than the lag time passes between two
steps, so no follower counts as caught up for having been it lately, and every pause has ended), the numbers of requests
that no caller waits for, and the order of an ISR. ``tests/unit/exhaustive`` compares with brokers that are never
frozen.

A record is its epoch and its number, a batch holds one record. ``Cell`` keeps a value once, with its hashes (blake2b of
its text), so that a state of the cluster is a few references, and its hash is made of a few hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from tidegauge_broker.replica.snapshot import ReplicaSnapshot

DIGEST_BYTES = 12
"""96 bits: among ten million states two of the same hash are as likely as one in 10^15."""


class BrokerState(NamedTuple):
    """One broker.

    Attributes:
        incarnation: the number of its process, which is its broker epoch too; a new session raises it.
        running: whether the process runs.
        records: its log, (epoch, number) each.
        epochs: the epoch file, (epoch, start offset) each; ``safe_epochs``: what a power loss leaves of it.
        checkpoint: the high watermark on disk.
        reported: the end that it has reported to its leaders, ``safe_end`` the flushed end; 0 if no power loss can
            come.
        replica: None before the process was notified of it.
        rounds: requests that are in flight or whose responses are: (number, leader).
    """

    incarnation: int
    running: bool
    records: tuple[tuple[int, int], ...]
    epochs: tuple[tuple[int, int], ...]
    safe_epochs: tuple[tuple[int, int], ...]
    checkpoint: int
    reported: int
    safe_end: int
    replica: ReplicaSnapshot | None
    rounds: tuple[tuple[int, int], ...]


class Letter(NamedTuple):
    """A LeaderAndIsr request that a broker may get: written for that incarnation of it."""

    broker: int
    incarnation: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


class ControllerState(NamedTuple):
    """The partition's state in ZooKeeper and at the controller, and the brokers' lives: registered, and as it knows."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    registered: tuple[int, ...]
    known: tuple[int, ...]


class FollowerRequest(NamedTuple):
    """A follower's request. ``kind`` is fetch (at ``offset``, of the log's last ``epoch``) or epoch (its end)."""

    kind: str
    leader: int
    number: int
    incarnation: int
    offset: int
    epoch: int | None
    current_epoch: int | None


class Response(NamedTuple):
    """A leader's response. ``end``: where logs part, or the asked epoch ends; ``record``: offset, epoch and number."""

    error: str
    high_watermark: int
    log_end: int
    end: tuple[int, int] | None
    record: tuple[int, int, int] | None


class Exchange(NamedTuple):
    """A request in flight (no response yet), or its response. ``orphaned``: the process that asked is dead."""

    follower: int
    orphaned: bool
    request: FollowerRequest
    response: Response | None


class Verdict(NamedTuple):
    """The controller's response to a proposal."""

    error: str
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


class Cell:
    """One value, kept once. ``next`` remembers what came of each event, ``shapes`` its hashes (see below)."""

    __slots__ = ("next", "shapes", "value", "view")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.next: dict[Any, Any] = {}
        self.shapes: dict[object, HashedShape] = {}
        self.view: Any = None


class Cells:
    """All values that were seen, each once."""

    def __init__(self) -> None:
        self._cells: dict[Any, Cell] = {}

    def __len__(self) -> int:
        return len(self._cells)

    def of(self, value: Any) -> Cell:
        """Return the value's cell."""
        cell = self._cells.get(value)
        if cell is None:
            cell = self._cells[value] = Cell(value)
        return cell


Naming = Sequence[int]
"""``naming[b]`` is the new name of broker b; -1, none, stays itself by way of the last place."""
Shape = tuple[Any, tuple[int, ...]]
"""A value with brokers renamed and without its partition epochs; and these, in their order there.

Of a partition epoch only its order among the others counts, so states are compared by their ranks.
"""


def shape_of_broker(state: BrokerState, naming: Naming) -> Shape:
    """Return the shape of a broker."""
    replica = state.replica
    versions: tuple[int, ...] = ()
    if replica is not None:
        versions = (replica.partition_epoch,)
        leads, follows = replica.leads, replica.follows
        if leads is not None:
            pending = leads.pending
            if pending is not None:
                versions = (*versions, pending.partition_epoch)
                pending = pending._replace(partition_epoch=0, new_isr=_rename_all(pending.new_isr, naming))
            leads = leads._replace(
                isr=_rename_all(leads.isr, naming),
                pending=pending,
                joins=None if leads.joins is None else naming[leads.joins],
                remotes=tuple(sorted((naming[broker], end) for broker, end in leads.remotes)),
            )
        if follows is not None:
            follows = follows._replace(leader=naming[follows.leader])
        replica = replica._replace(leader=naming[replica.leader], partition_epoch=0, leads=leads, follows=follows)
    rounds = tuple((number, naming[leader]) for number, leader in state.rounds)
    return state._replace(replica=replica, rounds=rounds), versions


def shape_of_controller(state: ControllerState, naming: Naming) -> Shape:
    """Return the shape of the controller."""
    renamed = state._replace(
        leader=naming[state.leader],
        isr=_rename_all(state.isr, naming),
        partition_epoch=0,
        registered=_move(state.registered, naming),
        known=_move(state.known, naming),
    )
    return renamed, (state.partition_epoch,)


def shape_of_mail(mail: tuple[Letter, ...], naming: Naming) -> Shape:
    """Return the shape of the letters."""
    renamed = sorted(
        letter._replace(broker=naming[letter.broker], leader=naming[letter.leader], isr=_rename_all(letter.isr, naming))
        for letter in mail
    )
    versions = tuple(letter.partition_epoch for letter in renamed)
    return tuple(letter._replace(partition_epoch=0) for letter in renamed), versions


def shape_of_net(net: tuple[Exchange, ...], naming: Naming) -> Shape:
    """Return the shape of the messages, which carry no partition epoch."""
    renamed = (
        one._replace(follower=naming[one.follower], request=one.request._replace(leader=naming[one.request.leader]))
        for one in net
    )
    return tuple(sorted(renamed, key=repr)), ()


def _rename_all(brokers: tuple[int, ...], naming: Naming) -> tuple[int, ...]:
    return tuple(sorted(naming[broker] for broker in brokers))


def _move(values: tuple[int, ...], naming: Naming) -> tuple[int, ...]:
    """Values by broker, from 1: each goes where its broker's new name is."""
    moved = list(values)
    for place, value in enumerate(values, 1):
        moved[naming[place] - 1] = value
    return tuple(moved)


HashedShape = tuple[bytes, tuple[int, ...]]


def hashed(cell: Cell, name: object, naming: Naming | None, shape: Callable[[Any, Any], Shape]) -> HashedShape:
    """Return the hash of the cell's shape under a naming, remembered by name."""
    known = cell.shapes.get(name)
    if known is None:
        value, versions = shape(cell.value, naming)
        known = cell.shapes[name] = hash_of(value), versions
    return known


def hash_of(value: Any) -> bytes:
    """Return the hash of a value's text."""
    return blake2b(repr(value).encode(), digest_size=DIGEST_BYTES).digest()
