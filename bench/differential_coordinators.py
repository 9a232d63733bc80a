"""The coordinators of Kafka 4's groups beside Apache Kafka 4.3.1's: ``make differential`` with ``KRAFT=1``.

The same random stories (``coordinator_stories.py``: heartbeats of consumer groups and share groups, commits by member
epoch, share fetches and acknowledgements, requests of the persister) are played at a broker of each. Compared are the
responses, field by field, and the records that each wrote into ``__share_group_state`` and, of Kafka 4's groups, into
``__consumer_offsets``: all but ids and times. Exit 0: no difference without a reason; 1: one or more, or no Kafka.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from coordinator_stories import PARTITIONS, STORIES, Teller, Topic
from differential_kraft import ALONE, Side, note, plain, short
from differential_kraft_rules import excuse
from tests.clients.programs import Unavailable, kafka_classpath
from tests.integration.controllers_compared import is_same
from tests.integration.quorum_nodes import KAFKA, OURS

from tidegauge.kafka.coordinator.consumer_group_regular_expression import ConsumerGroupRegularExpressionKey
from tidegauge.kafka.coordinator.share_snapshot import ShareSnapshotKey
from tidegauge.kafka.coordinator.share_update import ShareUpdateKey
from tidegauge.kafka.kraft.broker_apis import KRAFT_BROKER_PROTOCOL
from tidegauge_broker.coordinator.consumer_group.assignors.java_order import java_set
from tidegauge_broker.coordinator.consumer_group.records import CODEC as CONSUMER_RECORDS
from tidegauge_broker.coordinator.record_codec import read_batches, version_of
from tidegauge_broker.coordinator.share_group.records import KINDS as SHARE_RECORDS
from tidegauge_broker.coordinator.share_state.records import KINDS as STATE_RECORDS
from tidegauge_broker.coordinator.typed_records import RecordKinds

SETTINGS = ALONE | {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "5",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.share.record.lock.duration.ms": "60000",
    "group.consumer.session.timeout.ms": "60000",
    "group.share.session.timeout.ms": "60000",
}
"""Of both: all records of a kind in one log, snapshots often, and no timer that ends within a story."""
STEPS = 60
BY_CHANCE = {
    "create_timestamp",
    "write_timestamp",
    "assignment_timestamp",
    "metadata_hash",
    "timestamp",
    "version",
}
"""Fields of records that hold times or an offset of the metadata log, or hang on ids of topics."""
TRIES = 200
"""Of topics until one has an id of the right order."""
LOGS: Mapping[str, Sequence[RecordKinds]] = {
    "__share_group_state": [STATE_RECORDS],
    "__consumer_offsets": [CONSUMER_RECORDS, SHARE_RECORDS],
}
"""The types of the records that are compared, by topic."""
KEYS = {api.name: key for key, api in KRAFT_BROKER_PROTOCOL.apis.items()}
Line = tuple[str, Any, Any]
"""API and version, the request, and the response, as plain values."""


class Heard(NamedTuple):
    """Responses and records of a side.

    Attributes:
        lines: requests and responses, by story.
        records: by topic and by story.
    """

    lines: dict[str, list[Line]]
    records: dict[str, dict[str, list[Any]]]


def play_at(side: Side, kind: str, stories: Sequence[str], seeds: Sequence[int]) -> Heard:
    """Play the stories at a side.

    The records of a story are read at its end: members are removed once their session is over.
    """
    found = Heard({}, {topic: {} for topic in LOGS})
    names: dict[bytes, str] = {}
    for story in stories:
        for seed in seeds:
            group = f"{story}-{seed}"
            note(f"{kind}: {group}")
            topic = Topic(group, ordered_topic(side, group))
            names[topic.topic_id] = group
            teller = Teller(side.new_peer, group, [topic])
            try:
                STORIES[story](teller, group, STEPS)
            finally:
                teller.close()
            found.lines[group] = [
                (one.what, plain(one.request, names), plain(one.response, names)) for one in teller.heard
            ]
            for internal, codecs in LOGS.items():
                directory = side.cluster.brokers[0].directories[0] / f"{internal}-0"
                found.records[internal] |= records_of(directory, codecs, group, names)
    return found


def ordered_topic(side: Side, name: str) -> bytes:
    """Make a topic whose partitions are in ascending order in Java's sets; return its id.

    The order hangs on the topic's id, and Kafka's assignors and coordinators go by it; so it has to be one order at
    both sides. A topic with another order is deleted and made again.
    """
    for _ in range(TRIES):
        topic_id = side.new_topic(name, PARTITIONS)
        wanted = [(topic_id, at) for at in range(PARTITIONS)]
        if all(list(java_set(wanted, capacity)) == wanted for capacity in (8, 16)):
            return topic_id
        side.delete_topic(name)
    raise RuntimeError(f"{TRIES} ids of topics have another order")


def responses_compared(kafkas: Mapping[str, list[Line]], ours: Mapping[str, list[Line]]) -> int:
    """Print what differs, of each story the first; return how many stories differ without a reason."""
    compared, unexplained = 0, 0
    reasons: Counter[str] = Counter()
    for story, lines in kafkas.items():
        for number, (theirs, mine) in enumerate(zip_longest(lines, ours[story])):
            compared += 1
            if theirs is None or mine is None or theirs[:2] != mine[:2]:
                unexplained += 1
                print(f"{story} {number}: other requests\n  Kafka     {short(theirs)}\n  Tidegauge {short(mine)}")
                break
            what, request, response = theirs
            if is_same(mine[2], response):
                continue
            reason = excuse(KEYS[what.split(" ")[0]], request, response, mine[2])
            if reason is not None:
                reasons[reason] += 1
                continue
            unexplained += 1
            print(
                f"{story} {number}: {what}\n  asked     {short(request)}\n"
                f"  Kafka     {short(response)}\n  Tidegauge {short(mine[2])}"
            )
            break
    for reason, count in sorted(reasons.items()):
        print(f"differs {count} times: {reason}")
    print(f"{compared} responses compared, {reasons.total()} differ for a reason, {unexplained} stories without one")
    return unexplained


def records_of(
    directory: Path, codecs: Sequence[RecordKinds], group: str, names: Mapping[bytes, str]
) -> dict[str, list[Any]]:
    """Return a group's records in an internal topic; None stands for a tombstone."""
    found: dict[str, list[Any]] = {group: []}
    for at, record in _records(directory, codecs):
        if at.partition(",")[0] == group:
            found.setdefault(at, []).append(plain_record(record, names))
    return found


def _records(directory: Path, codecs: Sequence[RecordKinds]) -> Iterator[tuple[str, Any]]:
    for path in sorted(directory.glob("*.log")):
        for loaded in read_batches(path.read_bytes()):
            for key, value in loaded.records:
                codec = next((one for one in codecs if version_of(key) in one), None)
                if codec is not None:
                    of = codec.read_key(key)
                    yield (
                        of.group_id + _part(of),
                        (type(of).__name__, of, None if value is None else codec.read_value(of, value)),
                    )


def _part(key: Any) -> str:
    """Return the part of a group's records that is compared by itself.

    Its order among the others hangs on threads.
    """
    if isinstance(key, ConsumerGroupRegularExpressionKey):
        return ", regular expressions"
    return f", partition {key.partition}" if isinstance(key, (ShareSnapshotKey, ShareUpdateKey)) else ""


def plain_record(record: tuple[str, Any, Any], names: Mapping[bytes, str]) -> Any:
    """Return a record as plain values."""
    kind, key, value = record
    return kind, _without_chance(plain(key, names)), _without_chance(plain(value, names))


def _without_chance(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_chance(one) for name, one in value.items() if name not in BY_CHANCE}
    return [_without_chance(one) for one in value] if isinstance(value, list) else value


def records_compared(what: str, kafkas: dict[str, list[Any]], ours: dict[str, list[Any]]) -> int:
    """Print the first record of each part of a log that differs; return in how many one does."""
    differing = 0
    for group in dict.fromkeys([*kafkas, *ours]):
        pairs = enumerate(zip_longest(kafkas.get(group, []), ours.get(group, [])))
        for number, (theirs, mine) in pairs:
            if theirs != mine:
                differing += 1
                print(f"{what}, {group}, record {number}\n  Kafka     {short(theirs)}\n  Tidegauge {short(mine)}")
                break
    count = sum(map(len, kafkas.values()))
    print(f"{what}: {count} records of Kafka's in {len(kafkas)} parts compared, {differing} differ")
    return differing


def compared(at: Path, classpath: str, stories: Sequence[str], seeds: Sequence[int]) -> int:
    """Play the stories at both sides; return how much differs without a reason."""
    heard: dict[str, Heard] = {}
    for kind in (KAFKA, OURS):
        side = Side(at / kind, kind, classpath, SETTINGS)
        with side.cluster:
            side.warm_up()
            heard[kind] = play_at(side, kind, stories, seeds)
    kafkas, ours = heard[KAFKA], heard[OURS]
    found = responses_compared(kafkas.lines, ours.lines)
    return found + sum(records_compared(topic, kafkas.records[topic], ours.records[topic]) for topic in LOGS)


def main() -> int:
    """Compare; return the exit code."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--stories", nargs="+", choices=list(STORIES), default=list(STORIES))
    parser.add_argument("--seeds", type=int, default=5, help="how many of each story")
    parser.add_argument("--first-seed", type=int, default=1)
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    with tempfile.TemporaryDirectory(prefix="differential-coordinators-") as name:
        try:
            classpath = kafka_classpath()
        except Unavailable as problem:
            print(f"Apache Kafka can't be had here: {problem}")
            return 1
        return 1 if compared(Path(name), classpath, options.stories, seeds) else 0


if __name__ == "__main__":
    sys.exit(main())
