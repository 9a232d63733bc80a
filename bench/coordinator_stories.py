"""Random requests to the coordinators of Kafka 4's groups, each made from the responses before it.

A story is played at one broker alone. It is the same at two brokers whose responses are the same: what it draws comes
from its seed, and what it knows (epochs, assignments, acquired records) from the responses. Timers are so long that
none ends within a story.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tests.waiting import until
from tests.wire_responses.batches import batch
from tests.wire_responses.probe import Peer, built

from tidegauge.kafka.kraft.broker_apis import KRAFT_BROKER_PROTOCOL

KEYS = {api.name: key for key, api in KRAFT_BROKER_PROTOCOL.apis.items()}
READY_SECONDS = 60.0
PARTITIONS = 4
"""Of each topic."""
RECORD_BATCHES, BATCH_RECORDS = 12, 5
FIRST_WAIT_MS, WAIT_MS = 10_000, 1_000
"""Longer than Kafka's leader takes to hear that a release has been written, which no response waits for."""
MANY_BYTES = 1_000_000
MEMBERS = ("EREAAAAAQACAAAAAAAAAQQ", "EREAAAAAQACAAAAAAAAAQg", "EREAAAAAQACAAAAAAAAAQw")
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
FINAL = (GAP, ACCEPT, REJECT)
"""Acknowledgements of records that no member is to get again; another may be acquired in the same fetch, or not."""
SAME_STATES = 5
SETTLE_SECONDS = 0.05
LEAVE, LEAVE_FOR_A_WHILE = -1, -2


class Topic(NamedTuple):
    """A topic of a story."""

    name: str
    topic_id: bytes


class Response(NamedTuple):
    """A request of a story.

    Attributes:
        what: API and version.
        request: the message.
        response: the message, or what the broker did instead.
    """

    what: str
    request: Any
    response: Any


class Teller:
    """Asks one broker, on a connection for each member, and keeps the responses.

    Args:
        connect: opens a connection.
        seed: of all draws.
        topics: that the story may use; they exist, and have leaders.
    """

    def __init__(self, connect: Callable[[], Peer], seed: str, topics: Sequence[Topic]) -> None:
        self.rng = random.Random(seed)
        self.topics = topics
        self.heard: list[Response] = []
        self._connect = connect
        self._peers: dict[str, Peer] = {}

    def close(self, who: str | None = None) -> None:
        """Close the connection of a member, or all."""
        for name in list(self._peers) if who is None else [who]:
            if name in self._peers:
                self._peers.pop(name).close()

    def ask(self, name: str, version: int, who: str = "", **fields: Any) -> Any:
        """Send a request, keep and return the response."""
        request = built(KRAFT_BROKER_PROTOCOL.message_class(KEYS[name], response=False), fields)
        if who not in self._peers:
            self._peers[who] = self._connect()
        response = self._peers[who].ask(version, request)
        if isinstance(response, str):
            self.close(who)
        self.heard.append(Response(f"{name} v{version}", request, response))
        return response

    def ask_until(self, holds: Callable[[Any], bool], name: str, version: int, who: str = "", **fields: Any) -> Any:
        """Repeat a request until its response is the awaited one; only that one is kept."""
        found: list[Any] = []

        def is_awaited() -> bool:
            found[:] = [self.ask(name, version, who, **fields)]
            if not holds(found[0]):
                self.heard.pop()
                return False
            return True

        until(is_awaited, READY_SECONDS, f"{name} is as awaited")
        return found[0]


# Members of a consumer group


class Consumer:
    """A member as the coordinator has it.

    Attributes:
        name: its id.
        instance_id: of a static member.
        epoch: of its last response.
        assigned: partitions by topic id.
    """

    def __init__(self, name: str, instance_id: str | None) -> None:
        self.name, self.instance_id = name, instance_id
        self.epoch = 0
        self.assigned: dict[bytes, list[int]] = {}

    def heard(self, response: Any) -> None:
        """Take over what a response says."""
        if response.error_code:
            self.epoch, self.assigned = 0, {}
            return
        self.epoch = max(response.member_epoch, 0)
        if response.assignment is not None:
            pairs = ((bytes(one.topic_id), list(one.partitions)) for one in response.assignment.topic_partitions)
            self.assigned = dict(pairs)


def consumers(teller: Teller, group: str, steps: int) -> None:
    """Have three members of a consumer group (KIP-848) send heartbeats, commits and fetches of offsets."""
    rng = teller.rng
    members = [Consumer(name, rng.choice((None, None, f"i{at}"))) for at, name in enumerate(MEMBERS)]
    for _ in range(steps):
        member = rng.choice(members)
        act = rng.choices((_heartbeat, _commit, _offsets, _describe_consumers), (12, 3, 2, 1))[0]
        act(teller, group, member)


def _heartbeat(teller: Teller, group: str, member: Consumer) -> None:
    rng = teller.rng
    odd = rng.random()
    epoch = member.epoch
    if odd < 0.25:
        epoch = rng.choice((0, LEAVE, LEAVE_FOR_A_WHILE, epoch - 1, epoch + 1))
    owned: list[dict[str, Any]] | None = [
        {"topic_id": topic_id, "partitions": [one for one in partitions if rng.random() < 0.9]}
        for topic_id, partitions in member.assigned.items()
    ]
    is_whole = epoch == 0 or rng.random() < 0.3
    if epoch == 0:
        owned = []
    elif rng.random() < 0.3:
        owned = None
    names = [topic.name for topic in teller.topics if rng.random() < 0.9] if is_whole else None
    regex = rng.choice((None, None, None, "", "no-such-.*")) if is_whole else None
    response = teller.ask(
        "ConsumerGroupHeartbeat",
        1,
        group_id=group,
        member_id=member.name,
        member_epoch=epoch,
        instance_id=member.instance_id,
        rebalance_timeout_ms=300_000 if is_whole else -1,
        subscribed_topic_names=names,
        subscribed_topic_regex=regex,
        server_assignor=rng.choice((None, "uniform", "range", "unknown")) if is_whole and odd < 0.5 else None,
        topic_partitions=owned,
    )
    member.heard(response)


def _commit(teller: Teller, group: str, member: Consumer) -> None:
    topic, rng = teller.topics[0], teller.rng
    teller.ask(
        "OffsetCommit",
        9,
        group_id=group,
        generation_id_or_member_epoch=member.epoch + rng.choice((0, 0, 0, -1, 1)),
        member_id=member.name,
        group_instance_id=member.instance_id,
        topics=[
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": at, "committed_offset": rng.randrange(9), "committed_metadata": "m"}
                    for at in rng.sample(range(PARTITIONS), 2)
                ],
            }
        ],
    )


def _offsets(teller: Teller, group: str, member: Consumer) -> None:
    teller.ask(
        "OffsetFetch",
        9,
        groups=[
            {
                "group_id": group,
                "member_id": member.name,
                "member_epoch": member.epoch + teller.rng.choice((0, 0, 0, -1, 1)),
                "topics": None,
            }
        ],
        require_stable=True,
    )


def _describe_consumers(teller: Teller, group: str, _: Consumer) -> None:
    teller.ask("ConsumerGroupDescribe", 1, group_ids=[group])


# Members of a share group


def share_members(teller: Teller, group: str, steps: int) -> None:
    """Have three members of a share group (KIP-932) come and go, and its offsets described, altered and deleted."""
    rng = teller.rng
    epochs = dict.fromkeys(MEMBERS, 0)
    name = teller.topics[0].name
    joined = teller.ask(
        "ShareGroupHeartbeat",
        1,
        group_id=group,
        member_id=MEMBERS[0],
        member_epoch=0,
        subscribed_topic_names=[name],
    )
    epochs[MEMBERS[0]] = joined.member_epoch
    _wait_initialized(teller, group)
    for _ in range(steps):
        act = rng.choices(("heartbeat", "describe", "offsets", "alter", "delete"), (12, 2, 2, 1, 1))[0]
        if act == "heartbeat":
            _share_heartbeat(teller, group, epochs)
        elif act == "describe":
            teller.ask("ShareGroupDescribe", 1, group_ids=[group])
        elif act == "offsets":
            topics = rng.choice((None, [{"topic_name": name, "partitions": [0, 1]}]))
            teller.ask("DescribeShareGroupOffsets", 1, groups=[{"group_id": group, "topics": topics}])
        elif act == "alter":
            partitions = [
                {"partition_index": at, "start_offset": rng.randrange(20)}
                for at in rng.sample(range(PARTITIONS + 1), 2)
            ]
            teller.ask(
                "AlterShareGroupOffsets", 0, group_id=group, topics=[{"topic_name": name, "partitions": partitions}]
            )
        else:
            teller.ask("DeleteShareGroupOffsets", 0, group_id=group, topics=[{"topic_name": name}])


def _share_heartbeat(teller: Teller, group: str, epochs: dict[str, int]) -> None:
    """Send a heartbeat; one that has partitions initialized is followed by others until they are assigned."""
    rng = teller.rng
    member = rng.choice(MEMBERS)
    epoch = epochs[member]
    if rng.random() < 0.25:
        epoch = rng.choice((0, 0, LEAVE, epoch - 1, epoch + 1))
    names = [topic.name for topic in teller.topics] if epoch == 0 or rng.random() < 0.2 else None
    response = teller.ask(
        "ShareGroupHeartbeat", 1, group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=names
    )
    epochs[member] = 0 if response.error_code else max(response.member_epoch, 0)
    if names is not None and not response.error_code and epoch != LEAVE:
        _wait_initialized(teller, group)


def _wait_initialized(teller: Teller, group: str) -> None:
    """Wait until all share partitions are initialized, which a heartbeat begins and does not await."""
    teller.ask_until(
        lambda found: [len(one.partitions) for one in found.groups[0].topics] == [PARTITIONS],
        *("DescribeShareGroupOffsets", 1),
        groups=[{"group_id": group, "topics": None}],
    )


# Records of a share partition


def share_records(teller: Teller, group: str, steps: int) -> None:
    """Have three members fetch records of a share partition, and acknowledge them in every way.

    Each member ends its session itself, one after the other: sessions that end with their connections are released in
    any order.
    """
    topic = teller.topics[0]
    _append(teller, topic)
    _begin(teller, group, topic)
    readers = [Reader(teller, group, topic, name) for name in MEMBERS]
    for number in range(steps):
        reader = teller.rng.choice(readers)
        if number == 0 or teller.rng.random() < 0.5:
            reader.fetch(FIRST_WAIT_MS if number == 0 else WAIT_MS)
        elif teller.rng.random() < 0.85:
            reader.acknowledge()
        else:
            reader.end()
        if number % 5 == 4:
            summary(teller, group, topic)
    for reader in readers:
        reader.end()
    summary(teller, group, topic)


def _append(teller: Teller, topic: Topic) -> None:
    for number in range(RECORD_BATCHES):
        values = [b"%d-%d" % (number, at) for at in range(BATCH_RECORDS)]
        partitions = [{"index": 0, "records": batch(values)}]
        teller.ask(
            "Produce", 9, acks=-1, timeout_ms=30_000, topic_data=[{"name": topic.name, "partition_data": partitions}]
        )


def _begin(teller: Teller, group: str, topic: Topic) -> None:
    """Initialize the share partition at its first record; the group has no members."""
    partitions = [{"partition_index": 0, "start_offset": teller.rng.choice((0, 0, 3))}]
    teller.ask_until(
        lambda found: not found.error_code and not found.responses[0].partitions[0].error_code,
        *("AlterShareGroupOffsets", 0),
        group_id=group,
        topics=[{"topic_name": topic.name, "partitions": partitions}],
    )


def summary(teller: Teller, group: str, topic: Topic) -> None:
    """Ask for the durable state of a share partition."""
    topics = [{"topic_id": topic.topic_id, "partitions": [{"partition": 0, "leader_epoch": -1}]}]
    teller.ask("ReadShareGroupStateSummary", 1, group_id=group, topics=topics)
    teller.ask("ReadShareGroupState", 0, group_id=group, topics=topics)


class Reader:
    """A member with a share session.

    Args:
        teller: asks for it.
        group: its group.
        topic: what it reads partition 0 of.
        name: its id.
    """

    def __init__(self, teller: Teller, group: str, topic: Topic, name: str) -> None:
        self._teller, self._group, self._topic, self._name = teller, group, topic, name
        self._epoch = 0
        self._acquired: list[tuple[int, int]] = []

    def fetch(self, wait_ms: int) -> None:
        """Fetch, and acknowledge something with it at times."""
        rng = self._teller.rng
        is_odd = rng.random() < 0.1
        epoch = self._epoch + 1 if is_odd else self._epoch
        acknowledged = list(self._acknowledged(FINAL)) if epoch and rng.random() < 0.4 else []
        response = self._teller.ask(
            "ShareFetch",
            2,
            self._name,
            group_id=self._group,
            member_id=self._name,
            share_session_epoch=epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=MANY_BYTES,
            max_records=rng.choice((1, 3, 7, 100)),
            batch_size=rng.choice((1, 4, 100)),
            share_acquire_mode=rng.choice((0, 1)),
            topics=[self._asked(acknowledged)] if acknowledged or not epoch or rng.random() < 0.3 else [],
        )
        self._heard(response)

    def _heard(self, response: Any) -> None:
        if isinstance(response, str) or response.error_code:
            self._epoch = 0
            return
        self._epoch += 1
        for topic in response.responses:
            for one in topic.partitions:
                self._acquired += [(at.first_offset, at.last_offset) for at in getattr(one, "acquired_records", ())]

    def _asked(self, acknowledged: Sequence[Any]) -> dict[str, Any]:
        partition = {"partition_index": 0, "acknowledgement_batches": list(acknowledged)}
        return {"topic_id": self._topic.topic_id, "partitions": [partition]}

    def _acknowledged(self, kinds: Sequence[int] = (GAP, ACCEPT, RELEASE, REJECT)) -> Iterator[dict[str, Any]]:
        """Draw some of the acquired records, in the order of offsets; rarely another one."""
        rng = self._teller.rng
        taken = sorted(one for one in self._acquired if rng.random() < 0.6)
        self._acquired = [one for one in self._acquired if one not in taken] if rng.random() < 0.9 else self._acquired
        for first, last in taken:
            begin = rng.randint(first, last)
            end = rng.randint(begin, last)
            count = rng.choice((1, end - begin + 1))
            types = [rng.choice(kinds) for _ in range(count)]
            yield {"first_offset": begin, "last_offset": end, "acknowledge_types": types}
        if rng.random() < 0.1:
            begin = rng.randrange(80)
            yield {"first_offset": begin, "last_offset": begin + rng.randrange(3), "acknowledge_types": [ACCEPT]}

    def acknowledge(self) -> None:
        """Acknowledge, or renew locks."""
        rng = self._teller.rng
        is_renewal = rng.random() < 0.15
        batches = list(self._acknowledged((ACCEPT, RELEASE, RENEW) if is_renewal else (GAP, ACCEPT, RELEASE, REJECT)))
        epoch = self._epoch + 1 if rng.random() < 0.05 else self._epoch
        self._acknowledge(epoch, batches, is_renewal=is_renewal)

    def _acknowledge(self, epoch: int, batches: Sequence[Any], *, is_renewal: bool = False) -> None:
        response = self._teller.ask(
            "ShareAcknowledge",
            2,
            self._name,
            group_id=self._group,
            member_id=self._name,
            share_session_epoch=epoch,
            is_renew_ack=is_renewal,
            topics=[self._asked(batches)] if batches else [],
        )
        self._heard(response)

    def end(self) -> None:
        """End the session: acquired records are released."""
        self._acknowledge(LEAVE, list(self._acknowledged()))
        self._epoch, self._acquired = 0, []
        _settle(self._teller, self._group, self._topic)


def _settle(teller: Teller, group: str, topic: Topic) -> None:
    """Wait until the durable state is the same for a while: the end of a session is not awaited by its response."""
    seen: list[Any] = []
    while len(seen) < SAME_STATES or any(one != seen[-1] for one in seen[-SAME_STATES:]):
        summary(teller, group, topic)
        seen.append([one.response for one in teller.heard[-2:]])
        del teller.heard[-2:]
        time.sleep(SETTLE_SECONDS)


# States at the share coordinator


def states(teller: Teller, group: str, steps: int) -> None:
    """Initialize, write, read and delete the states of two share partitions as their leaders' persisters do."""
    for _ in range(steps):
        name, make = teller.rng.choices(_OF_STATES, (2, 8, 3, 1, 3))[0]
        topic = teller.topics[0]
        topics = [{"topic_id": topic.topic_id, "partitions": [make(teller.rng)]}]
        version = 1 if name in {"WriteShareGroupState", "ReadShareGroupStateSummary"} else 0
        teller.ask(name, version, group_id=group, topics=topics)


def _at(rng: random.Random) -> dict[str, Any]:
    return {"partition": rng.choice((0, 0, 0, 1, 99))}


def _epoch(rng: random.Random) -> int:
    return rng.choice((-1, 0, 0, 1, 1, 2, 3))


def _written(rng: random.Random) -> dict[str, Any]:
    start = rng.randrange(12)
    batches, first = [], start
    for _ in range(rng.randrange(4)):
        first += rng.randrange(3)
        last = first + rng.randrange(4)
        state, count = rng.choice((0, 2, 4)), rng.randint(1, 4)
        batches.append({"first_offset": first, "last_offset": last, "delivery_state": state, "delivery_count": count})
        first = last + 1 if rng.random() < 0.8 else first
    return _at(rng) | {
        "state_epoch": _epoch(rng),
        "leader_epoch": _epoch(rng),
        "start_offset": rng.choice((-1, start, start)),
        "delivery_complete_count": rng.choice((-1, 0, 3)),
        "state_batches": batches,
    }


_OF_STATES: Sequence[tuple[str, Callable[[random.Random], dict[str, Any]]]] = (
    (
        "InitializeShareGroupState",
        lambda rng: _at(rng) | {"state_epoch": _epoch(rng), "start_offset": rng.choice((-1, 0, 7))},
    ),
    ("WriteShareGroupState", _written),
    ("ReadShareGroupState", lambda rng: _at(rng) | {"leader_epoch": _epoch(rng)}),
    ("DeleteShareGroupState", _at),
    ("ReadShareGroupStateSummary", lambda rng: _at(rng) | {"leader_epoch": _epoch(rng)}),
)

STORIES: Mapping[str, Callable[[Teller, str, int], None]] = {
    "consumers": consumers,
    "share-members": share_members,
    "share-records": share_records,
    "states": states,
}
"""The stories by name; each plays a number of steps with a group."""
