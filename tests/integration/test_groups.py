"""Consumer groups of unmodified Kafka clients on coordinators that are killed: members, generations, commits.

Members run in processes of their own (tests/clients/group_member.py); the tests look at the group through the admin
client, over gRPC, by any broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.typed import typed
from tests.waiting import until

from tidegauge.partition import TopicPartition
from tidegauge_client import Admin, Producer
from tidegauge_client.admin_groups import GroupDescription
from tidegauge_lab.local.cluster import LocalCluster

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")
pytest.importorskip("kafka", reason="pip install -e '.[dev]' brings kafka-python")

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
LIMIT_SECONDS = 90.0
TIDEGAUGE = str(Path(sys.executable).parent / "tidegauge")
MEMBER = Path(__file__).parents[1] / "clients" / "group_member.py"
LIBRARIES = ("confluent", "aiokafka", "kafka-python")
PARTITIONS = 6

Result = TypeVar("Result")


def on_its_own(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on an event loop in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def ask(cluster: LocalCluster, request: Callable[[Admin], Coroutine[Any, Any, Result]]) -> Result:
    """Make one request of the admin client."""

    async def work() -> Result:
        async with Admin(cluster.bootstrap_servers) as admin:
            return await request(admin)

    return on_its_own(work())


@pytest.fixture
def topic(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """A topic of six partitions on all brokers, whose name is the test's; its groups have the same name."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    ask(cluster, lambda admin: admin.create_topic(name, partitions=PARTITIONS, replication_factor=3))
    return name


def produce(cluster: LocalCluster, topic: str, count: int) -> None:
    """Append records to all partitions in turn, and wait until they are committed."""

    async def work() -> None:
        async with Producer(cluster.bootstrap_servers) as producer:
            for number in range(count):
                await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
            await producer.flush()

    on_its_own(work())


class Member:
    """One member's process, and what it has printed."""

    def __init__(
        self,
        library: str,
        cluster: LocalCluster,
        topic: str,
        session_ms: int = 6_000,
        group: str = "",
        assignor: str = "range",
    ) -> None:
        is_ours = library == "tidegauge"
        servers = ",".join(cluster.bootstrap_servers if is_ours else cluster.kafka_bootstrap_servers)
        command = [
            sys.executable,
            "-W",
            "ignore",
            str(MEMBER),
            library,
            servers,
            group or topic,
            topic,
            str(session_ms),
            assignor,
        ]
        self.library = library
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.commits: list[tuple[int, int]] = []
        self.assigned: list[int] | None = None
        self.revoked: list[list[int]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            fields = json.loads(line)
            if "assigned" in fields:
                self.assigned = fields["assigned"]
            if fields.get("revoked"):
                self.revoked.append(fields["revoked"])
            self.commits += ((int(at), offset) for at, offset in fields.get("committed", {}).items())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(LIMIT_SECONDS)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def leave(self) -> None:
        """End in order: the member leaves the group."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(LIMIT_SECONDS)
        self.kill()


@contextlib.contextmanager
def members(
    cluster: LocalCluster,
    topic: str,
    libraries: tuple[str, ...] = LIBRARIES,
    session_ms: int = 6_000,
    group: str = "",
    assignor: str = "range",
) -> Iterator[list[Member]]:
    """Run a member of each library in one group; what still runs is killed when the block ends."""
    running = [Member(library, cluster, topic, session_ms, group, assignor) for library in libraries]
    try:
        yield running
    finally:
        for one in running:
            if one.process.returncode is None:
                one.kill()


def described(cluster: LocalCluster, group: str) -> GroupDescription:
    return ask(cluster, lambda admin: admin.describe_group(group))


def until_stable(cluster: LocalCluster, group: str, count: int) -> GroupDescription:
    """Wait until the group is Stable, all its members are there, and every partition is assigned."""

    def found() -> GroupDescription | None:
        group_now = described(cluster, group)
        assigned = sum(len(member.assignment) for member in group_now.members)
        is_so = group_now.state == "Stable" and len(group_now.members) == count and assigned == PARTITIONS
        return group_now if is_so else None

    group_now = until(found, timeout=LIMIT_SECONDS, what=f"{group} is stable with {count} members")
    assert group_now is not None
    return group_now


def committed(cluster: LocalCluster, group: str) -> dict[int, int]:
    found = ask(cluster, lambda admin: admin.committed_offsets(group))
    return {at.partition: one.offset for at, one in found.items()}


def until_committed(cluster: LocalCluster, group: str, each: int) -> None:
    """Wait until the group has committed this offset in every partition."""
    wanted = dict.fromkeys(range(PARTITIONS), each)
    until(lambda: committed(cluster, group) == wanted, timeout=LIMIT_SECONDS, what=f"{group} has committed {each}")


def coordinator(cluster: LocalCluster, group: str) -> int:
    return ask(cluster, lambda admin: admin.find_coordinator(group))


def kill_coordinator(cluster: LocalCluster, group: str) -> int:
    """Kill the group's coordinator (kill --coordinator-of); return it when another has taken over."""
    killed = cluster.coordinator_of(group)
    assert killed == coordinator(cluster, group)
    cluster.kill(killed, expire=True)

    def moved() -> bool:
        return coordinator(cluster, group) != killed

    until(moved, timeout=LIMIT_SECONDS, what="another broker coordinates the group")
    return killed


def nothing_went_back(running: list[Member], cluster: LocalCluster, group: str) -> None:
    """No acknowledged commit is lost: what the group has is at least the largest acknowledged offset of a partition.

    And no member saw its own commits of a partition go back, since a partition has one reader at a time.
    """
    now = committed(cluster, group)
    for one in running:
        largest: dict[int, int] = {}
        for partition, offset in one.commits:
            assert offset >= largest.get(partition, 0), (one.library, partition, one.commits)
            largest[partition] = offset
        for partition, offset in largest.items():
            assert now[partition] >= offset, (one.library, partition)


def test_three_libraries_share_a_group_through_a_killed_coordinator(cluster: LocalCluster, topic: str) -> None:
    """The new coordinator loads the group; the members go on, and no acknowledged commit is lost."""
    produce(cluster, topic, 600)
    with members(cluster, topic) as running:
        until_stable(cluster, topic, 3)
        until_committed(cluster, topic, 100)
        killed = kill_coordinator(cluster, topic)
        produce(cluster, topic, 600)
        until_committed(cluster, topic, 200)
        after = until_stable(cluster, topic, 3)
        assert after.coordinator != killed
        nothing_went_back(running, cluster, topic)
        cluster.start(killed)
        assert sorted(at.partition for member in after.members for at in member.assignment) == list(range(PARTITIONS))


def test_our_consumer_leads_a_group_with_librdkafka_through_a_killed_coordinator(
    cluster: LocalCluster, topic: str
) -> None:
    """Both read each other's bytes of ConsumerProtocol, over two wires; when ours leaves, the other leads."""
    produce(cluster, topic, 300)
    with members(cluster, topic, ("tidegauge",), session_ms=60_000) as running:
        until_stable(cluster, topic, 1)
        until_committed(cluster, topic, 50)
        running.append(Member("confluent", cluster, topic, session_ms=60_000))
        both = until_stable(cluster, topic, 2)
        assert sorted(len(member.assignment) for member in both.members) == [3, 3]
        killed = kill_coordinator(cluster, topic)
        produce(cluster, topic, 300)
        until_committed(cluster, topic, 100)
        after = until_stable(cluster, topic, 2)
        assert {member.member_id for member in after.members} == {member.member_id for member in both.members}
        nothing_went_back(running, cluster, topic)
        running[0].leave()
        until_stable(cluster, topic, 1)
        cluster.start(killed)
        cluster.wait_ready()


@pytest.mark.long
@pytest.mark.parametrize("first", ["tidegauge", "confluent"])
def test_a_cooperative_group_goes_on_reading_while_members_come_and_are_killed(
    cluster: LocalCluster, topic: str, first: str
) -> None:
    """KIP-429, whoever leads: of the first member's partitions only those that move are revoked; none is lost."""
    second = "confluent" if first == "tidegauge" else "tidegauge"
    produce(cluster, topic, 300)
    with members(cluster, topic, (first,), assignor="cooperative-sticky") as running:
        until_stable(cluster, topic, 1)
        until_committed(cluster, topic, 50)
        for library in (second, first):
            running.append(Member(library, cluster, topic, assignor="cooperative-sticky"))
        before = until_stable(cluster, topic, 3)
        assert sorted(len(member.assignment) for member in before.members) == [2, 2, 2]
        assert sum(map(len, running[0].revoked)) == 4, "six before, two now"
        killed = kill_coordinator(cluster, topic)
        produce(cluster, topic, 300)
        until_committed(cluster, topic, 100)
        running[1].kill()
        until_stable(cluster, topic, 2)
        produce(cluster, topic, 300)
        until_committed(cluster, topic, 150)
        assert sum(map(len, running[0].revoked)) == 4, "what a dead member had is added, and nothing revoked for it"
        nothing_went_back(running, cluster, topic)
        cluster.start(killed)
        cluster.wait_ready()


def test_a_killed_member_is_replaced_when_its_session_ends(cluster: LocalCluster, topic: str) -> None:
    """Its partitions go to the others, in a new generation, and they begin at its last commit."""
    produce(cluster, topic, 300)
    with members(cluster, topic) as running:
        before = until_stable(cluster, topic, 3)
        until_committed(cluster, topic, 50)
        running[0].kill()
        after = until_stable(cluster, topic, 2)
        assert after.generation > before.generation
        produce(cluster, topic, 300)
        until_committed(cluster, topic, 100)
        nothing_went_back(running, cluster, topic)


def test_a_cluster_that_is_restarted_whole_knows_its_groups_and_offsets(cluster: LocalCluster, topic: str) -> None:
    """An empty group and its offsets come back from the log."""
    produce(cluster, topic, 300)
    with members(cluster, topic, ("confluent",)) as running:
        until_stable(cluster, topic, 1)
        until_committed(cluster, topic, 50)
        running[0].leave()
    until(lambda: described(cluster, topic).state == "Empty", timeout=LIMIT_SECONDS, what="the group is empty")
    before = described(cluster, topic)
    for broker in (0, 1, 2):
        cluster.kill(broker, expire=True)
    for broker in (0, 1, 2):
        cluster.start(broker)
    cluster.wait_ready()
    after = described(cluster, topic)
    assert (after.state, after.generation, after.protocol_type) == ("Empty", before.generation, "consumer")
    assert committed(cluster, topic) == dict.fromkeys(range(PARTITIONS), 50)
    listed = ask(cluster, lambda admin: admin.list_groups())
    assert (topic, "consumer", "Empty") in {one[:3] for one in listed}


@pytest.mark.long
def test_commits_go_on_while_every_coordinator_is_killed_in_turn(cluster: LocalCluster, topic: str) -> None:
    """Commit after commit through three kills: none that was acknowledged is lost or goes back."""
    with members(cluster, topic) as running:
        until_stable(cluster, topic, 3)
        for turn in range(1, 4):
            produce(cluster, topic, 300)
            killed = kill_coordinator(cluster, topic)
            until_committed(cluster, topic, 50 * turn)
            nothing_went_back(running, cluster, topic)
            cluster.start(killed)
            cluster.wait_ready()


def test_groups_are_deleted_and_their_offsets_with_them(cluster: LocalCluster, topic: str) -> None:
    """A group with members is NON_EMPTY_GROUP; one without is removed, offsets too (KIP-229)."""
    produce(cluster, topic, 60)
    with members(cluster, topic, ("aiokafka",)) as running:
        until_stable(cluster, topic, 1)
        until_committed(cluster, topic, 10)
        with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
            ask(cluster, lambda admin: admin.delete_group(topic))
        running[0].leave()
    until(lambda: described(cluster, topic).state == "Empty", timeout=LIMIT_SECONDS, what="the group is empty")
    ask(cluster, lambda admin: admin.delete_group(topic))
    assert described(cluster, topic).state == "Dead"
    assert committed(cluster, topic) == {}


def verb(cluster: LocalCluster, *arguments: str, own: tuple[str, ...] = ()) -> tuple[int, str]:
    """Run a verb of the command line against one broker; return its exit code and both of its outputs."""
    address = own or ("-b", cluster.bootstrap_servers[0])
    done = typed(*arguments, *address)
    return done.code, done.stdout + done.stderr


def test_the_verbs_describe_reset_and_delete_a_group_by_any_broker(cluster: LocalCluster, topic: str) -> None:
    """As kafka-consumer-groups.sh: a group with members is shown and not reset; one without is reset and deleted."""
    produce(cluster, topic, 60)
    with members(cluster, topic, ("confluent",)) as running:
        until_stable(cluster, topic, 1)
        until_committed(cluster, topic, 10)
        code, shown = verb(cluster, "describe-group", topic)
        rows = [line.split() for line in shown.splitlines()[1:]]
        assert code == 0
        assert [row[1:6] for row in rows] == [[topic, str(at), "10", "10", "0"] for at in range(PARTITIONS)]
        code, shown = verb(cluster, "reset-offsets", topic, "--all-topics", "--to-earliest", "--execute")
        assert code == 1
        assert f"Assignments can only be reset if the group '{topic}' is inactive, but the current state is" in shown
        running[0].leave()
    until(lambda: described(cluster, topic).state == "Empty", timeout=LIMIT_SECONDS, what="the group is empty")
    shift = ("reset-offsets", topic, "--topic", f"{topic}:0,1", "--shift-by", "-3")
    code, shown = verb(cluster, *shift)
    *rows, hint = shown.splitlines()[1:]
    assert (code, [line.split()[2:] for line in rows]) == (0, [["0", "7"], ["1", "7"]])
    assert "--execute" in hint
    assert committed(cluster, topic)[0] == 10, "without --execute nothing is set"
    assert verb(cluster, *shift, "--execute")[0] == 0
    assert committed(cluster, topic) == {0: 7, 1: 7, 2: 10, 3: 10, 4: 10, 5: 10}
    code, shown = verb(cluster, "describe-group", topic, "--state")
    assert code == 0
    assert f"Consumer group '{topic}' has no active members." in shown
    assert topic in verb(cluster, "list-groups", "--state", "Empty")[1]
    code, shown = verb(cluster, "delete-group", topic)
    assert (code, shown) == (0, f"Deletion of requested consumer groups ('{topic}') was successful.\n")
    assert verb(cluster, "describe-group", topic) == (1, f"Consumer group '{topic}' does not exist.\n")


def test_offsets_of_a_deleted_topic_are_removed(cluster: LocalCluster, topic: str) -> None:
    """GroupCoordinator.handleDeletedPartitions, at whichever broker coordinates."""
    from tidegauge_client.admin_groups import OffsetAndMetadata  # noqa: PLC0415

    at = TopicPartition(topic, 0)

    def is_committed() -> bool:
        # A coordinator that has not heard of the new topic yet refuses it: UNKNOWN_TOPIC_OR_PARTITION.
        return ask(cluster, lambda admin: admin.commit_offsets(topic, {at: OffsetAndMetadata(7, metadata="m")})) == {
            at: None
        }

    until(is_committed, timeout=LIMIT_SECONDS, what="the offset is committed")
    assert ask(cluster, lambda admin: admin.committed_offsets(topic)) == {at: OffsetAndMetadata(7, -1, "m")}
    ask(cluster, lambda admin: admin.delete_topic(topic))
    until(lambda: committed(cluster, topic) == {}, timeout=LIMIT_SECONDS, what="the offsets are removed")


@pytest.mark.long
def test_explain_names_the_member_that_a_rebalance_waits_for_and_consume_is_a_member(
    cluster: LocalCluster, topic: str
) -> None:
    """A frozen member (SIGSTOP) holds the join phase up until it goes on; `consume --group` shares its partitions."""

    def explained() -> str:
        return " ".join(verb(cluster, "explain", f"group:{topic}")[1].split())  # without its line breaks

    produce(cluster, topic, 60)
    with members(cluster, topic, ("confluent",), session_ms=120_000) as running:
        until_stable(cluster, topic, 1)
        until_committed(cluster, topic, 10)
        [first] = described(cluster, topic).members
        assert "is Stable for" in explained()
        running[0].process.send_signal(signal.SIGSTOP)
        command = [TIDEGAUGE, "consume", topic, "--group", topic, "--max-messages", "30", "-b"]
        consume = subprocess.Popen(
            [*command, cluster.bootstrap_servers[1]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            awaited = f"Member {first.member_id} of {first.host} has not sent JoinGroup"
            until(lambda: awaited in explained(), timeout=LIMIT_SECONDS, what=awaited)
            running[0].process.send_signal(signal.SIGCONT)
            both = until_stable(cluster, topic, 2)
            assert sorted(len(member.assignment) for member in both.members) == [3, 3]
            produce(cluster, topic, 60)
            shown, notes = consume.communicate(timeout=LIMIT_SECONDS)
        finally:
            consume.kill()
            consume.wait()
        assert (consume.returncode, len(shown.split())) == (0, 30), notes
        assert "Processed a total of 30 messages" in notes
        until_stable(cluster, topic, 1)
        until_committed(cluster, topic, 20)
