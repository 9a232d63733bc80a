"""``tidegauge verify --shares`` by the history of real clients: Java's KafkaShareConsumer through a killed leader.

The history is clean, and nothing is missing; spoilt on purpose, it names the guarantee that is broken.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.clients.programs import Unavailable
from tests.waiting import until

from tidegauge_client.sync_admin import SyncAdmin
from tidegauge_lab.accountant.shares.findings import Breach
from tidegauge_lab.local.cluster import LocalCluster

confluent_kafka = pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402 - it may be missing
from tests.integration.share_books import AT, GROUP, LIMIT_SECONDS, Books, end_member, start_member  # noqa: E402 - it imports it

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def kraft(tmp_path: Path, next_base_port: Callable[[], int]) -> Iterator[LocalCluster]:
    """Three brokers and three controllers, and a topic on all brokers."""
    made = LocalCluster.create(tmp_path / "cluster", base_port=next_base_port(), mode="kraft")
    try:
        made.up()
        client = AdminClient({"bootstrap.servers": ",".join(made.kafka_bootstrap_servers)})
        for future in client.create_topics([NewTopic(AT.topic, 1, 3)]).values():
            future.result(LIMIT_SECONDS)
        yield made
    finally:
        made.down(grace_seconds=0)


def member(cluster: LocalCluster, mode: str, history: Path, name: str) -> subprocess.Popen[str]:
    try:
        return start_member(cluster, mode, history, name)
    except Unavailable as missing:
        pytest.skip(str(missing))


def test_javas_share_consumers_keep_every_guarantee_through_a_killed_leader_and_a_spoilt_history_does_not(
    kraft: LocalCluster, tmp_path: Path
) -> None:
    """An accepted record is not given again, and nothing is passed over; a member dies, too."""
    books = Books(kraft, tmp_path / "history.jsonl")
    books.begin_group()
    members = [
        member(kraft, mode, books.path, name)
        for mode, name in (("explicit", "java 1"), ("implicit", "java 2"), ("implicit", "java 3"))
    ]
    try:
        numbers = iter(range(10_000))

        def each_was_given_some(*names: str) -> bool:
            number = next(numbers)
            books.send(f"{('accept', 'release', 'reject', 'accept')[number % 4]} {number}")
            given_to = {line["process"] for line in books.lines() if line["type"] == "ok" and "records" in line}
            return given_to >= set(names)

        until(lambda: each_was_given_some("java 1", "java 2", "java 3"), LIMIT_SECONDS, "each is given records")
        members[2].kill()
        members[2].communicate(timeout=60)
        with SyncAdmin(kraft.bootstrap_servers) as admin:
            leader = admin.metadata([AT.topic]).topics[AT.topic].partitions[AT.partition].leader_id
        assert leader is not None
        kraft.kill(leader)
        for _ in range(20):
            each_was_given_some()
        kraft.start(leader)
        until(lambda: books.acknowledged <= books.given(), LIMIT_SECONDS, "all were given")
        wanted = len(books.acknowledged)

        def are_done() -> bool:
            each_was_given_some()  # a start offset is written with the next word of a member
            return books.start_offset() >= wanted

        until(are_done, LIMIT_SECONDS, "all of these are done")
    finally:
        for one in members:
            if one.poll() is None:
                end_member(one)
    code, found = books.judged()
    assert (code, found["clean"]) == (0, True), found
    assert not any("passed-over" in why for why in found["not_checked"]), found
    group = found["groups"][GROUP]
    assert group["records"] >= len(books.acknowledged)
    assert group["after_release"] > 0, "the explicit member releases"
    spoil(books)


def spoil(books: Books) -> None:
    """Break each guarantee on purpose, in a copy of the history: it is named."""
    original = books.path.read_text()
    lines = books.lines()
    of_last = max(line["time_us"] for line in lines)
    words = {(line["process"], line["number"]): line for line in lines if line.get("op") == "acknowledge"}
    accepted = next(
        record[2]
        for line in lines
        if line["type"] == "ok" and (line["process"], line["number"]) in words
        for record in words[line["process"], line["number"]]["records"]
        if record[3] == "accept"
    )
    value = next(r[3] for line in lines for r in line.get("records", ()) if len(r) == 5 and r[2] == accepted)
    again = [AT.topic, AT.partition, accepted, value, 1]
    other = [AT.topic, AT.partition, accepted, "another value", 1]
    for record, kind in ((again, Breach.ACCEPTED_AGAIN), (other, Breach.TWO_VALUES)):
        thief = {"process": "thief", "number": 0}
        invoke = {"type": "invoke", **thief, "time_us": of_last + 1, "op": "acquire", "group": GROUP}
        outcome = {"type": "ok", **thief, "time_us": of_last + 2, "records": [record]}
        books.path.write_text(original + "".join(json.dumps(line) + "\n" for line in (invoke, outcome)))
        code, found = books.judged()
        assert code == 1
        assert found["counts"][kind.value] == 1
    lost = next(line["value"] for line in lines if line.get("op") == "send")
    kept = [
        {**line, "records": [r for r in line["records"] if len(r) != 5 or r[3] != lost]} if "records" in line else line
        for line in lines
    ]
    books.path.write_text("".join(json.dumps(line) + "\n" for line in kept))
    assert books.judged()[1]["counts"][Breach.PASSED_OVER.value] == 1
