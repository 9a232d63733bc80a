"""The actions of a cluster that is driven by hand: their names, their parameters and the bounds of these.

An action is its name and whole numbers, so a schedule of actions is short text (``schedule``), and nothing that a
stranger writes there can be more than a name of this table with numbers within bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidegauge.near_names import did_you_mean
from tidegauge_proof.hand.settings import MOST_PARTITIONS, Settings

MOST_RECORDS = 20
MOST_MS = 120_000
MOST_MESSAGES = 99_999
MOST_CLIENTS = 4
"""Transactional producers: two for each of two transactional ids, so that one can fence the other."""
MOST_MEMBERS = 4
MOST_OFFSET = 99_999
MOST_PROCESSES = 9
"""Clients of stories, of each kind."""
ACKS = (0, 1, -1)
"""Acknowledgements by their number in a schedule: none, the leader's, all in-sync replicas'."""


class ActionError(ValueError):
    """An action that there is not; the text is a sentence for people."""


class Parameter(NamedTuple):
    """A whole number of an action, from ``least`` to ``most``; for a broker ``most`` is the cluster's."""

    name: str
    least: int
    most: int
    is_broker: bool = False


class Kind(NamedTuple):
    """A kind of action: its name, its letter in a schedule's text, its parameters and its meaning."""

    name: str
    letter: str
    parameters: tuple[Parameter, ...]
    meaning: str


class Action(NamedTuple):
    """An action: the name of its kind and its numbers, in the order of the kind's parameters."""

    kind: str
    values: tuple[int, ...]

    def value(self, name: str) -> int:
        """Return a number by the name of its parameter."""
        places = [one.name for one in KINDS[self.kind].parameters]
        return self.values[places.index(name)]


_BROKER = Parameter("broker", 0, 9, is_broker=True)
_OTHER = Parameter("other", 0, 9, is_broker=True)
_CLIENT = Parameter("client", 1, MOST_CLIENTS)
_MEMBER = Parameter("member", 1, MOST_MEMBERS)
_OFFSET = Parameter("offset", 0, MOST_OFFSET)
_MESSAGE = Parameter("message", 1, MOST_MESSAGES)
_PROCESS = Parameter("client", 1, MOST_PROCESSES)
_PARTITION = Parameter("partition", 0, MOST_PARTITIONS - 1)
_COUNT = Parameter("count", 1, MOST_RECORDS)
_API = Parameter("api", 0, 9)
_GROUP = Parameter("group", 1, MOST_PROCESSES)
_TABLE = (
    Kind(
        "produce",
        "p",
        (Parameter("count", 1, MOST_RECORDS), Parameter("acks", 0, 2), _BROKER),
        "a client sends a batch to a broker that it takes for the leader; acks 0: none, 1: the leader's, 2: all",
    ),
    Kind(
        "produce_idempotently",
        "i",
        (Parameter("count", 1, MOST_RECORDS), _BROKER),
        "the idempotent producer sends its batch, or the same again while it has no acknowledgement",
    ),
    Kind("consume", "c", (_BROKER,), "a consumer reads from the start what a broker gives as committed"),
    Kind("kill", "k", (_BROKER,), "the process ends by SIGKILL; its session lasts until it times out"),
    Kind("stop", "q", (_BROKER,), "the process shuts down in order: its leaders are moved before"),
    Kind("pause", "z", (_BROKER,), "the process is stopped by SIGSTOP"),
    Kind("resume", "r", (_BROKER,), "the process continues"),
    Kind("start", "s", (_BROKER,), "a process starts on the disks that are there"),
    Kind("power_loss", "w", (_BROKER,), "the machine loses power: what was not flushed is lost"),
    Kind("flush", "f", (_BROKER,), "all that the broker has written is put on disk"),
    Kind("checkpoint", "g", (_BROKER,), "the broker writes its high watermarks to the checkpoint file"),
    Kind("hold_fetch", "h", (_BROKER,), "the follower sends no further fetch"),
    Kind("release_fetch", "u", (_BROKER,), "the follower fetches by itself again"),
    Kind("step_fetch", "n", (_BROKER,), "a held follower does one round: one request, its response, the append"),
    Kind("send_fetch", "j", (_BROKER,), "a held follower sends its request; the response waits in flight"),
    Kind("cut_link", "x", (_BROKER, _OTHER), "calls from one broker do not reach another; responses use their call's"),
    Kind("part_zookeeper", "o", (_BROKER,), "the broker reaches ZooKeeper no more; its session will time out"),
    Kind("heal_links", "m", (), "all links work again, that to ZooKeeper too"),
    Kind("end_session", "e", (_BROKER,), "ZooKeeper ends the broker's session"),
    Kind("elect", "v", (), "the preferred replica is elected where it is in sync"),
    Kind("wait", "t", (Parameter("ms", 1, MOST_MS),), "time goes on"),
    Kind("deliver", "d", (_MESSAGE,), "a message in flight arrives"),
    Kind("lose", "l", (_MESSAGE,), "a message in flight is lost"),
    Kind("repeat", "a", (_MESSAGE,), "a message arrives, and once more later"),
    Kind("delay", "y", (_MESSAGE,), "a message waits until it is delivered by hand"),
    Kind("init_transactions", "I", (_CLIENT,), "a producer gets its id and epoch, and fences its predecessor"),
    Kind("begin_transaction", "B", (_CLIENT,), "a producer begins a transaction"),
    Kind("produce_in_transaction", "P", (Parameter("count", 1, MOST_RECORDS), _CLIENT), "a batch in a transaction"),
    Kind("commit_transaction", "C", (_CLIENT,), "the producer commits its transaction"),
    Kind("abort_transaction", "A", (_CLIENT,), "the producer aborts its transaction"),
    Kind("read_committed", "R", (_BROKER,), "a consumer with isolation.level=read_committed reads from the start"),
    Kind("join_group", "J", (_MEMBER,), "a consumer starts, joins the group, and sends heartbeats"),
    Kind("leave_group", "L", (_MEMBER,), "a consumer leaves the group in order"),
    Kind("stop_member", "K", (_MEMBER,), "a consumer is killed: no heartbeat any more"),
    Kind("commit_offsets", "O", (_MEMBER,), "a consumer commits an offset"),
    Kind("join_consumers", "G", (_MEMBER,), "a consumer of the consumer protocol (KIP-848) starts and joins its group"),
    Kind("beat_consumer", "H", (_MEMBER,), "it sends a heartbeat now"),
    Kind("keep_partitions", "Q", (_MEMBER,), "it goes on with what it is to give up: its revocation callback hangs"),
    Kind("revoke_partitions", "V", (_MEMBER,), "it gives up what it is to give up, and says so"),
    Kind("commit_as_consumer", "M", (_MEMBER,), "it commits an offset with its member epoch"),
    Kind("leave_consumers", "E", (_MEMBER,), "it leaves the group in order"),
    Kind("stop_consumer", "D", (_MEMBER,), "it is killed: no heartbeat any more"),
    Kind("join_share_group", "S", (_MEMBER,), "a member of the share group (KIP-932) starts and joins"),
    Kind("beat_share_member", "T", (_MEMBER,), "it sends a heartbeat now"),
    Kind("share_fetch", "F", (Parameter("count", 1, MOST_RECORDS), _MEMBER), "it fetches: it acquires records"),
    Kind("accept", "N", (_MEMBER, _OFFSET), "it acknowledges a record as processed"),
    Kind("release", "U", (_MEMBER, _OFFSET), "it releases a record: it will be delivered again"),
    Kind("reject", "X", (_MEMBER, _OFFSET), "it rejects a record: it will never be delivered again"),
    Kind("renew", "Y", (_MEMBER, _OFFSET), "it renews its lock on a record (KIP-1222)"),
    Kind("leave_share_group", "W", (_MEMBER,), "it closes: what it has is released, and it leaves"),
    Kind("stop_share_member", "Z", (_MEMBER,), "it is killed: its connections close, which releases what it has"),
    Kind(
        "start_producer",
        "ba",
        (
            _PROCESS,
            Parameter("id", 1, MOST_PROCESSES),
            Parameter("timeout_ms", 0, MOST_MS),
            Parameter("request_ms", 0, MOST_MS),
        ),
        "a process with a producer takes a transactional id over; timeouts of transactions and requests, 0: Kafka's",
    ),
    Kind("begin_transaction_of", "bb", (_PROCESS,), "the producer begins a transaction"),
    Kind("send_in_transaction", "bc", (_COUNT, _PROCESS, _PARTITION), "it sends a batch in its transaction"),
    Kind("send_offsets", "bd", (_PROCESS, _GROUP, _PARTITION, _OFFSET), "it commits an offset in its transaction"),
    Kind("end_transaction", "be", (_PROCESS, Parameter("commit", 0, 1)), "it commits (1) or aborts (0)"),
    Kind("kill_producer", "bf", (_PROCESS,), "the producer's process is killed"),
    Kind("pause_producer", "bg", (_PROCESS,), "the producer's process is stopped by SIGSTOP"),
    Kind("resume_producer", "bh", (_PROCESS,), "it continues"),
    Kind(
        "start_consumer",
        "bi",
        (
            _PROCESS,
            _GROUP,
            Parameter("session_ms", 0, MOST_MS),
            Parameter("max_poll_ms", 0, MOST_MS),
            Parameter("instance", 0, MOST_PROCESSES),
            Parameter("auto_commit", 0, 2),
            Parameter("committed", 0, 1),
        ),
        "a process with a consumer joins a group; 0: Kafka's timeouts, a dynamic member, no auto-commit, uncommitted",
    ),
    Kind("take_records", "bj", (_COUNT, _PROCESS, Parameter("busy", 0, 1)), "it takes records; 1: and polls no more"),
    Kind("commit_of_consumer", "bk", (_PROCESS,), "it commits what it has got"),
    Kind("poll_of_consumer", "bl", (_PROCESS,), "a busy consumer polls again"),
    Kind("kill_consumer", "bm", (_PROCESS,), "the consumer's process is killed"),
    Kind("close_consumer", "bn", (_PROCESS,), "the consumer is closed"),
    Kind(
        "hold_requests",
        "bo",
        (_BROKER, _API, Parameter("after", 0, 1), Parameter("once", 0, 1)),
        "a broker holds requests of an API, or (after) its responses to them; once: the next one alone",
    ),
    Kind("release_requests", "bp", (_BROKER,), "what a broker holds goes on"),
    Kind("break_response", "bq", (_BROKER, _API), "the next response of an API is lost: its connection breaks"),
    Kind("read_partition", "br", (_PARTITION, Parameter("committed", 0, 1)), "a consumer reads a partition"),
    Kind("abort_hanging", "bs", (_PARTITION, Parameter("start", 0, MOST_OFFSET)), "an open transaction is aborted"),
)
KINDS: Mapping[str, Kind] = {one.name: one for one in _TABLE}
BY_LETTER: Mapping[str, Kind] = {one.letter: one for one in _TABLE}
OF_STORIES = frozenset(one.name for one in _TABLE if len(one.letter) > 1)
OF_COORDINATORS = OF_STORIES | frozenset(one.name for one in _TABLE if one.letter.isupper())
OF_SHARE_GROUPS = frozenset(one.name for one in _TABLE if one.letter in "STFNUXYWZ")
ABOUT_MESSAGES = frozenset({"deliver", "lose", "repeat", "delay"})


def checked(kind: Kind, values: tuple[int, ...], settings: Settings) -> Action:
    """Return an action if its numbers are within bounds.

    Raises:
        ActionError: they are not.
    """
    if len(values) != len(kind.parameters):
        wanted = ", ".join(one.name for one in kind.parameters) or "none"
        raise ActionError(f"{kind.name} takes these numbers: {wanted}; {len(values)} were given")
    for one, value in zip(kind.parameters, values, strict=True):
        most = max(settings.brokers) if one.is_broker else one.most
        if not one.least <= value <= most:
            raise ActionError(
                f"{kind.name}: {one.name} is {value}; it must be a whole number from {one.least} to {most}"
            )
    return Action(kind.name, values)


def read_action(value: object, settings: Settings) -> Action:
    """Read an action from JSON: ``{"do": "kill", "broker": 1}``.

    Raises:
        ActionError: it is none.
    """
    if not isinstance(value, Mapping):
        raise ActionError("an action is an object")
    name = value.get("do")
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        hint = did_you_mean(name[:40], KINDS) if isinstance(name, str) else ""
        raise ActionError(f"there is no action {str(name)[:40]!r}{hint}")
    unknown = set(value) - {"do"} - {one.name for one in kind.parameters}
    if unknown:
        raise ActionError(f"{kind.name} has no parameter {str(min(map(str, unknown)))[:40]!r}")
    numbers = []
    for one in kind.parameters:
        number = value.get(one.name)
        if not isinstance(number, int) or isinstance(number, bool):
            raise ActionError(f"{kind.name} needs {one.name}, a whole number")
        numbers.append(number)
    return checked(kind, tuple(numbers), settings)
