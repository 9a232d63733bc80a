"""KRaft mode beside Apache Kafka 4.3.1: ``make differential`` with ``KRAFT=1``.

The same story at an active controller of each, compared response by response and record by record of the metadata log;
then the same odd requests, of every API and version that a broker of 4.3.1 serves, to a broker of each. The reasons
are in ``differential_kraft_rules.py``. Exit 0: no difference without a reason; 1: one or more, or no Kafka.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from differential_kraft_rules import LISTED_APART, differences, excuse
from tests.clients.programs import Unavailable, kafka_classpath
from tests.integration.controllers_compared import is_same, story_differences
from tests.integration.mixed_kraft import OF_BROKERS, MixedKraft
from tests.integration.quorum_nodes import KAFKA, OURS
from tests.odd_requests import OddRequests
from tests.waiting import until
from tests.wire_responses.batches import batch
from tests.wire_responses.probe import WORDS, Peer, message

from tidegauge.kafka.fields import Versions, Wire
from tidegauge.kafka.kraft.broker_apis import KRAFT_BROKER_PROTOCOL

ALONE = {
    **OF_BROKERS,
    **{name: "1" for name in OF_BROKERS if name.endswith((".replication.factor", ".min.isr"))},
    "log.retention.ms": "-1",
}
"""Settings of the only broker of a cluster; the requests' records are old, and sizes of logs are compared."""
SILENCE_SECONDS = 1.5
"""How long a response may take; a request that waits for others gets none."""
READY_SECONDS = 60.0
EACH = 6
"""Requests of each API and version."""
NULL_SHARE = 0.1
NEVER = Versions(0, -1)
PLAIN: Mapping[str, Sequence[Any]] = {
    "acks": (-1, 1),
    "rebalance_timeout_ms": (0, 0, 6_000, -1, 2**31 - 1, -(2**31)),
    "timeout_ms": (2_000,),
    "isolation_level": (0, 1),
    "key_type": (0, 1),
    "config_operation": (0, 1, 2, 3),
    "election_type": (0, 1),
    "upgrade_type": (1, 2),
    "match_type": (0, 1, 2),
    "entity_type": ("user", "client-id", "ip"),
    "resource_types": (2, 4, 8, 16, 32, 1, 99),
    "coordinator_epoch": (0, 1),
    "host": ("*",),
    "host_filter": ("*", "10.0.0.1"),
    "principal": ("User:a",),
    "principal_filter": ("User:a", "User:b"),
    "operation": (3, 4),
    "permission_type": (2, 3),
    "resource_pattern_type": (3, 4),
    "pattern_type_filter": (1, 3, 4),
    "resource_type_filter": (1, 2, 3),
}
"""Values of fields in place of ``OddRequests``'s.

Numbers that Kafka does not know close connections there. After a rebalance timeout of 1 ms a response depends on
whether the timer or the next request was first.
"""
COORDINATED = {"groups": 0, "transactions": 1}
"""Types of coordinators whose internal topics are created before anything is asked."""
FIRST_TOPICS = 2
UNKNOWN_TOPIC = 3
Asked = tuple[str, Any, Any]
"""The question's name, the request, and the response."""


def note(text: str) -> None:
    """Print to stderr, with the time."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class PlainRequests(OddRequests):
    """Odd requests that name nothing twice, and whose records can be read.

    A name given twice is refused here (docs/fidelity.md); the requests of ``tests/wire_responses`` have it.
    """

    def _value(self, api: str, name: str, wire: Wire, version: int) -> Any:
        if wire.kind == "array":
            is_null = version in wire.nullable and self._rng.random() < NULL_SHARE
            item = Wire(wire.item) if isinstance(wire.item, str) else Wire("struct", item=wire.item)
            found = [self._value(api, name, item, version) for _ in range(self._rng.choice((1, 1, 2)))]
            return None if is_null else list({named(one): one for one in found}.values())
        if wire.kind == "records":
            return batch()
        return super()._value(api, name, wire._replace(nullable=NEVER) if wire.kind == "struct" else wire, version)

    def _pool(self, api: str, name: str, kind: str) -> Sequence[Any]:
        return PLAIN.get(name) or super()._pool(api, name, kind)


def named(value: Any) -> Any:
    """Return the name of an array's item: itself, or its first field."""
    return repr(getattr(value, dataclasses.fields(value)[0].name) if dataclasses.is_dataclass(value) else value)


@contextlib.contextmanager
def both_sides(name: str, settings: Mapping[str, str]) -> Iterator[dict[str, Side]]:
    """Run a cluster of each kind, warm, and yield them by kind.

    Args:
        name: begins the name of their directory.
        settings: of the brokers.

    Raises:
        Unavailable: Apache Kafka can't be had here.
    """
    classpath = kafka_classpath()
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as at:
        sides = {kind: Side(Path(at) / kind, kind, classpath, settings) for kind in (KAFKA, OURS)}
        with sides[KAFKA].cluster, sides[OURS].cluster:
            for side in sides.values():
                side.warm_up()
            yield sides


class Side:
    """A cluster of one controller and one broker of a kind.

    Args:
        at: where its files go.
        kind: of both.
        classpath: of Kafka's jars.
        settings: of the broker.
    """

    def __init__(self, at: Path, kind: str, classpath: str, settings: Mapping[str, str] = ALONE) -> None:
        at.mkdir()
        self.cluster = MixedKraft(at, [kind], [kind], classpath, of_brokers=settings)
        self._host, _, port = self.cluster.brokers[0].address.rpartition(":")
        self._port = int(port)

    def ask(self, version: int, request: Any) -> Any:
        """Return the response, or what the broker did instead."""
        with contextlib.closing(self.new_peer()) as peer:
            return peer.ask(version, request, SILENCE_SECONDS)

    def new_peer(self) -> Peer:
        """Return a connection of the caller's own."""
        return Peer(self._host, self._port, protocol=KRAFT_BROKER_PROTOCOL)

    def versions(self) -> dict[int, tuple[int, int]]:
        """Return the ranges of versions that it advertises, by API."""
        return {one.api_key: (one.min_version, one.max_version) for one in self.ask(0, message("ApiVersions")).api_keys}

    def warm_up(self) -> None:
        """Wait until there are coordinators and producer ids; the first requests have these made."""
        for name, kind in COORDINATED.items():
            asked = message("FindCoordinator", key_type=kind, coordinator_keys=[name])
            self.wait_for(lambda asked=asked: self.ask(4, asked).coordinators[0].error_code == 0, f"{name} are served")
        asked = message("InitProducerId", transactional_id=None, transaction_timeout_ms=1_000)
        self.wait_for(lambda: self.ask(4, asked).error_code == 0, "there are producer ids")

    @staticmethod
    def wait_for(holds: Callable[[], bool], what: str) -> None:
        """Wait until something holds."""
        until(holds, READY_SECONDS, what)

    def topics(self, label: str) -> dict[str, bytes]:
        """Make the topics of one API; return their ids by name."""
        names = [f"{label}-{number}" for number in range(FIRST_TOPICS)]
        return {name: self.new_topic(name, 2) for name in names}

    def new_topic(self, name: str, partitions: int) -> bytes:
        """Make a topic whose partitions are led; return its id."""
        self.cluster.create_topic(name, [[0]] * partitions)
        for at in range(partitions):
            self.wait_for(lambda at=at: self._is_led(name, at), f"{name} is led")
        return bytes(self.ask(12, message("Metadata", topics=[{"name": name}])).topics[0].topic_id)

    def delete_topic(self, name: str) -> None:
        """Delete a topic; returns when the broker no longer knows it."""
        asked = message("DeleteTopics", topics=[{"name": name}], timeout_ms=30_000)
        self.wait_for(lambda: self.ask(6, asked).responses[0].error_code == UNKNOWN_TOPIC, f"{name} is deleted")

    def _is_led(self, name: str, partition: int) -> bool:
        asked = [{"name": name, "partitions": [{"partition_index": partition, "timestamp": -1}]}]
        response = self.ask(5, message("ListOffsets", replica_id=-1, topics=asked))
        return bool(response.topics[0].partitions[0].error_code == 0)

    def tell(self, seed: int, key: int, first: int, last: int) -> list[Asked]:
        """Ask the odd requests of one API, version by version."""
        label = f"odd-{key}"
        topics = self.topics(label)
        odd = PlainRequests(random.Random(f"{seed} {key}"), topics, label, KRAFT_BROKER_PROTOCOL)
        names = {topic_id: name for name, topic_id in topics.items()}
        found: list[Asked] = []
        for version in range(first, last + 1):
            for number in range(EACH):
                request = odd.message(key, version)
                response = self.ask(version, request)
                for field, known in odd.learned.items():
                    value = None if isinstance(response, str) else getattr(response, field, None)
                    if value not in {None, *known}:
                        known.append(value)
                what = f"{KRAFT_BROKER_PROTOCOL.apis[key].name} v{version} {number}"
                found.append((what, plain(request, names), plain(response, names)))
        return found


def plain(value: Any, names: Mapping[bytes, str]) -> Any:
    """Return a message as plain values: ids become names, random values a word."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {
            name: names.get(bytes(one)) or WORDS[name](one)
            if name == "topic_id"
            else plain(WORDS[name](one) if name in WORDS and one is not None else one, names)
            for name, one in fields.items()
            if name != "throttle_time_ms"
        }
    if isinstance(value, list | tuple):
        found = [plain(one, names) for one in value]
        return sorted(found, key=repr) if found and isinstance(found[0], dict) else found
    if isinstance(value, bytes | memoryview):
        return names.get(bytes(value), bytes(value).hex())
    return value


def requests_compared(at: Path, classpath: str, seed: int, only: set[int]) -> int:
    """Ask both, and print what differs; return how many differences have no reason."""
    sides = {kind: Side(at / f"requests-{kind}", kind, classpath) for kind in (KAFKA, OURS)}
    unexplained, compared = 0, 0
    reasons: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        for side in sides.values():
            stack.enter_context(side.cluster)
            side.warm_up()
        ranges = {kind: side.versions() for kind, side in sides.items()}
        for key, (first, last) in sorted(ranges[KAFKA].items()):
            if ranges[OURS].get(key) != (first, last):
                unexplained += key not in LISTED_APART
                reason = LISTED_APART.get(key, "no reason is known")
                print(f"API {key}: Kafka serves {first}-{last}, Tidegauge {ranges[OURS].get(key)}: {reason}")
                continue
            if (only and key not in only) or key not in KRAFT_BROKER_PROTOCOL.apis:
                continue
            note(f"API {key}, {KRAFT_BROKER_PROTOCOL.apis[key].name}")
            served_from = max(first, KRAFT_BROKER_PROTOCOL.apis[key].first)
            heard = {kind: side.tell(seed, key, served_from, last) for kind, side in sides.items()}
            for (what, request, kafkas), (_, _, ours) in zip(heard[KAFKA], heard[OURS], strict=True):
                compared += 1
                if is_same(ours, kafkas):
                    continue
                reason = excuse(key, request, kafkas, ours)
                if reason is not None:
                    reasons[reason] += 1
                else:
                    unexplained += 1
                    print(f"{what}\n  asked     {short(request)}")
                    for path, theirs, mine in differences(kafkas, ours):
                        print(f"  {'.'.join(path)}\n    Kafka     {short(theirs)}\n    Tidegauge {short(mine)}")
    for reason, count in sorted(reasons.items()):
        print(f"differs {count} times: {reason}")
    print(f"{compared} requests compared, {reasons.total()} responses differ for a reason, {unexplained} without one")
    return unexplained


def short(value: Any) -> str:
    """Return a value as one line."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def logs_compared(at: Path, classpath: str) -> int:
    """Tell the controllers' story at both, and print what differs; return how much."""
    found = story_differences(at, classpath)
    for what, ours, kafkas in found.responses:
        print(f"{what}\n  Kafka     {short(kafkas)}\n  Tidegauge {short(ours)}")
    for mine, theirs in found.batches:
        print(f"a batch of the metadata log\n  Kafka     {theirs}\n  Tidegauge {mine}")
    print(
        f"{found.compared_responses} responses of the active controller and {found.compared_batches} batches of the "
        f"metadata log compared: {len(found.responses)} and {len(found.batches)} differ"
    )
    return len(found.responses) + len(found.batches)


def main() -> int:
    """Compare; return the exit code."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="of the odd requests")
    parser.add_argument("--only", default="", metavar="KEY[,KEY]", help="of these APIs alone, without the story")
    parser.add_argument("--requests", action="store_true", help="without the story of the controllers")
    options = parser.parse_args()
    only = {int(key) for key in options.only.split(",") if key}
    with tempfile.TemporaryDirectory(prefix="differential-kraft-") as name:
        try:
            classpath = kafka_classpath()
        except Unavailable as problem:
            print(f"Apache Kafka can't be had here: {problem}")
            return 1
        found = 0 if only or options.requests else logs_compared(Path(name), classpath)
        found += requests_compared(Path(name), classpath, options.seed, only)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
