"""Rounds of odd requests to a cluster of three brokers: each gets a response, or its connection is closed.

Only requests that wait for others may get none for a while.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping, Sequence

from tests.odd_requests import OddRequests
from tests.wire_responses.probe import KEYS, SILENCE_SECONDS, SILENT, Probe, message

from tidegauge.kafka.apis import (
    ALTER_CLIENT_QUOTAS,
    BROKER_PROTOCOL,
    CONTROLLED_SHUTDOWN,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    JOIN_GROUP,
    LEADER_AND_ISR,
    PRODUCE,
    STOP_REPLICA,
    SYNC_GROUP,
    UPDATE_METADATA,
    Protocol,
)

MANY_OF = ("JoinGroup", "SyncGroup", "LeaveGroup", "OffsetCommit", "Produce", "Fetch", "Metadata", "AddPartitionsToTxn")
WAITING = {JOIN_GROUP, SYNC_GROUP, DESCRIBE_SHARE_GROUP_OFFSETS}
"""The last one because a partition that does not exist is looked for again for 30 s, as Kafka's persister does."""
SLOWEST_SECONDS = 60.0
"""Longer than request.timeout.ms, which ends a wait for a marker's acks."""
OBEYED = {LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA}
"""A whole one may carry the highest controller epoch, and then shuts the controller out: as at a Kafka broker."""
NOT_SENT = {*OBEYED, CONTROLLED_SHUTDOWN, ALTER_CLIENT_QUOTAS}
"""A quota of the test's own client would only make the test slow."""
TOPICS = ("odd-1", "odd-2")


def make_topics(probe: Probe) -> dict[str, bytes]:
    """Create two topics, unless they exist, and return their ids by name once they have leaders."""
    topics = {}
    for name in TOPICS:
        wanted = {"name": name, "num_partitions": 2, "replication_factor": 3}
        probe.ask(probe.controller, 7, message("CreateTopics", timeout_ms=30_000, topics=[wanted]))
        topics[name] = bytes(probe.topic(name).topic_id)
    return topics


class OddRounds:
    """Sends one odd request after the other, each over a connection of its own.

    Args:
        probe: of the cluster.
        odd: makes the requests.
        rng: decides which one, and at which broker.
        protocol: what the brokers serve.
    """

    def __init__(self, probe: Probe, odd: OddRequests, rng: random.Random, protocol: Protocol) -> None:
        self._probe, self._odd, self._rng, self._protocol = probe, odd, rng, protocol
        self._keys = [key for key in protocol.apis if key in probe.versions and key not in NOT_SENT]

    @classmethod
    def on(
        cls,
        addresses: Sequence[str],
        rng: random.Random,
        protocol: Protocol = BROKER_PROTOCOL,
        *,
        label: str = "odd",
        topics: Mapping[str, bytes] | None = None,
    ) -> OddRounds:
        """Return rounds on a cluster.

        Args:
            addresses: of its brokers, each ``host:port``.
            rng: decides all requests.
            protocol: what the brokers serve.
            label: begins the names of groups and transactional ids.
            topics: ids by name of the topics that requests are about; None: two are made.
        """
        parted = [(host, int(port)) for host, _, port in (one.rpartition(":") for one in addresses)]
        probe = Probe(parted, protocol=protocol)
        odd = OddRequests(rng, make_topics(probe) if topics is None else topics, label, protocol)
        return cls(probe, odd, rng, protocol)

    @property
    def topics(self) -> Mapping[str, bytes]:
        """The ids of the topics that requests are about, by name."""
        return self._odd.topics

    def ask_one(self) -> str:
        """Send a request and await its response; return the name of its API.

        Raises:
            AssertionError: there was none, and the request waits for no other.
            OSError: the broker accepts no connection.
        """
        key = KEYS[self._rng.choice(MANY_OF)] if self._rng.random() < 0.4 else self._rng.choice(self._keys)
        api = self._protocol.apis[key]
        version = self._rng.randint(api.first, api.last)
        request = self._odd.message(key, version)
        may_be_silent = key in WAITING or (key == PRODUCE and request.acks == 0)
        with contextlib.closing(self._probe.new_peer(self._rng.choice(self._probe.brokers))) as peer:
            response = peer.ask(version, request, SILENCE_SECONDS if may_be_silent else SLOWEST_SECONDS)
        for field, known in self._odd.learned.items():
            if not isinstance(response, str) and getattr(response, field, None) not in {None, *known}:
                known.append(getattr(response, field))
        assert response != SILENT or may_be_silent, (api.name, version, request)
        return api.name

    def close(self) -> None:
        """Close the connections that the rounds keep."""
        self._probe.close()
