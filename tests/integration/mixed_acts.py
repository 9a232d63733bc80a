"""Acts on a mixed cluster in KRaft mode: each kind of node in each role, under load and without.

Each act leaves all nodes up and all replicas in sync, with preferred leaders.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as Position
from tests.integration.administered import ROUND
from tests.integration.mixed_kraft import MixedKraft
from tests.integration.mixed_load import COPY, MOVED, PARTITIONS, SOURCE, Load
from tests.integration.swap_clients import LIMIT_SECONDS, read_all
from tests.waiting import until

from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.messages import (
    alter_partition_reassignments,
    describe_topic_partitions,
    list_partition_reassignments,
)

INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
PAIRS = [[0, 1], [1, 2], [2, 0]]
LEVELS = {
    "metadata.version": (29, 30),
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "transaction.version": (0, 2),
    "share.version": (0, 1),
}
"""Features, with the level at first and the one to which they are upgraded."""
LOW = (
    *("--feature", "streams.version=0"),
    *(word for name, (level, _) in LEVELS.items() for word in ("--feature", f"{name}={level}")),
)
"""Options of the format of a cluster that is upgraded."""


def create_topics(cell: MixedKraft) -> None:
    """Create the topics of the load, on which each broker leads."""
    for topic, assignment, minimum in ((SOURCE, ROUND, 2), (COPY, ROUND, 2), (MOVED, PAIRS, 1)):
        cell.create_topic(topic, [list(one) for one in assignment], **{"min.insync.replicas": str(minimum)})


def consume(cell: MixedKraft, load: Load) -> None:
    """Members of groups and transactions begin, so the topics of the coordinators are made."""
    with cell.acts.during("create", *INTERNAL):
        load.consume()
        load.wait_progress()
        cell.wait_all_in_sync()


def upgrade(cell: MixedKraft, load: Load) -> None:
    """Features are upgraded by Kafka's tool while nodes of both kinds are members and a producer writes."""
    load.wait_progress()
    words = [word for name, (_, level) in LEVELS.items() for word in ("--feature", f"{name}={level}")]
    with cell.acts.during("upgrade"):
        printed = cell.tool("FeatureCommand", "upgrade", *words)
        assert all(f"{name} was upgraded to {level}." in printed for name, (_, level) in LEVELS.items()), printed
        load.wait_progress()


def brokers_are_killed(cell: MixedKraft, load: Load, ids: Sequence[int] = ()) -> None:
    """A broker of each kind is killed: the leader, follower and coordinator of much; others take over, it returns."""
    for broker_id in ids or cell.one_of_each_kind(cell.brokers):
        assert {SOURCE, COPY, *INTERNAL} <= cell.led_by(broker_id), "it leads and coordinates"
        with cell.acts.during("kill", broker_id):
            cell.kill(broker_id)
            cell.wait_led_by_others(broker_id)
            load.wait_progress()
            cell.start(broker_id)
            returned(cell, load)


def brokers_are_paused(cell: MixedKraft, load: Load) -> None:
    """A broker of each kind does not run for longer than its session, and comes back as another leader's follower."""
    for broker_id in cell.one_of_each_kind(cell.brokers):
        with cell.acts.during("pause", broker_id):
            with cell.paused(broker_id):
                cell.wait_led_by_others(broker_id)
                load.wait_progress()
            returned(cell, load)


def brokers_are_stopped(cell: MixedKraft, load: Load) -> None:
    """A controlled shutdown of a broker of each kind, and its return."""
    for broker_id in cell.one_of_each_kind(cell.brokers):
        with cell.acts.during("stop", broker_id):
            cell.stop(broker_id)
            cell.wait_led_by_others(broker_id)
            load.wait_progress()
            cell.start(broker_id)
            returned(cell, load)


def returned(cell: MixedKraft, load: Load) -> None:
    """Wait until all replicas are in sync, and have preferred leaders lead."""
    cell.wait_all_in_sync()
    with cell.acts.during("elect"):
        cell.elect_all_preferred()
        load.wait_progress()


def controllers_are_lost(cell: MixedKraft, load: Load) -> None:
    """The active controller of each kind is killed, paused, and stopped; the next one makes a topic, and it returns."""
    for kind, how in itertools.product(cell.kinds_of(cell.quorum.nodes), ("kill", "pause", "stop")):
        leader = cell.make_controller(kind)
        with cell.acts.during(how, leader):
            if how == "pause":
                with cell.paused(leader):
                    succeeded(cell, load, leader, f"later-{kind}-{how}")
            else:
                cell.kill(leader) if how == "kill" else cell.stop(leader)
                succeeded(cell, load, leader, f"later-{kind}-{how}")
                cell.start(leader)
            cell.wait_quorum()


def succeeded(cell: MixedKraft, load: Load, former: int, topic: str) -> None:
    """Wait until another controller is active; it makes a topic."""
    cell.quorum.wait_leader(other_than=former)
    cell.create_topic(topic, [[0, 1, 2]])
    load.wait_progress()


def partitions_are_moved(cell: MixedKraft, load: Load) -> None:
    """Each partition of MOVED goes round all brokers under load, by controllers of each kind."""
    kinds = cell.kinds_of(cell.quorum.nodes)
    for turn in range(1, 4):
        cell.make_controller(kinds[turn % len(kinds)])
        wanted = [PAIRS[(at + turn) % PARTITIONS] for at in range(PARTITIONS)]
        with cell.acts.during("move", MOVED):
            partitions = [alter_partition_reassignments.ReassignablePartition(*one) for one in enumerate(wanted)]
            message = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
                topics=[alter_partition_reassignments.ReassignableTopic(MOVED, partitions)]
            )
            response = cell.ask(apis.ALTER_PARTITION_REASSIGNMENTS, message)
            assert {one.error_code for one in response.responses[0].partitions} == {0}, response

            def is_done() -> bool:
                listed = cell.ask(
                    apis.LIST_PARTITION_REASSIGNMENTS, list_partition_reassignments.ListPartitionReassignmentsRequest()
                )
                return not listed.topics

            until(is_done, LIMIT_SECONDS, f"the partitions are at {wanted}")
            cell.wait_in_sync(MOVED)
            until(lambda wanted=wanted: replicas_of_moved(cell) == wanted, LIMIT_SECONDS, f"replicas are {wanted}")
            load.wait_progress()


def replicas_of_moved(cell: MixedKraft) -> list[list[int]]:
    """Return the replicas of each partition of MOVED, by some broker's metadata."""
    return [list(one.replicas) for _, one in sorted(cell.partitions(MOVED).items())]


# Without load


def produced(cell: MixedKraft, topic: str, *values: str) -> None:
    """Append records with acks=all; each is acknowledged."""
    failed: list[Any] = []
    producer: Any = confluent_kafka.Producer({"bootstrap.servers": cell.servers, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(LIMIT_SECONDS) == 0
    assert not any(failed), failed


def values(cell: MixedKraft, topic: str) -> list[str]:
    """Return all values of partition 0."""
    [found] = read_all(cell.servers, [Position(topic, 0, 0)], committed=False).values()
    return [(record.value or b"").decode() for _, record in sorted(found.items())]


def state(cell: MixedKraft, topic: str) -> Any:
    """Return partition 0 with its eligible leader replicas, as a broker describes it."""
    node = next(one for one in cell.brokers if one.runs)
    request = describe_topic_partitions.DescribeTopicPartitionsRequest(
        [describe_topic_partitions.TopicRequest(topic)], 100
    )
    return cell.ask_broker(node.id, apis.DESCRIBE_TOPIC_PARTITIONS, request).topics[0].partitions[0]


def wait_state(cell: MixedKraft, topic: str, leader: int, isr: set[int], elr: set[int]) -> None:
    """Wait until the partition has this leader, these members of the ISR, and these eligible leader replicas."""

    def is_so() -> bool:
        found = state(cell, topic)
        assert found.error_code in {0, 5, 9}, found
        return (found.leader_id, set(found.isr_nodes), set(found.eligible_leader_replicas or ())) == (leader, isr, elr)

    until(is_so, LIMIT_SECONDS, f"{topic}: leader {leader}, ISR {isr}, ELR {elr}; it is {state(cell, topic)}")


def an_unclean_leader_is_elected(cell: MixedKraft) -> None:
    """Of two replicas of different kinds the one that is behind is elected on demand; the other truncates."""
    for first, second in orders(cell):
        topic = f"unclean-{first}"
        with cell.acts.during("unclean", topic, first, second):
            cell.create_topic(topic, [[first, second]], **{"min.insync.replicas": "1"})
            produced(cell, topic, "kept")
            cell.stop(second)
            wait_state(cell, topic, first, {first}, set())
            produced(cell, topic, "lost")
            cell.stop(first)
            cell.start(second)
            wait_state(cell, topic, -1, set(), {first})
            admin = cell.admin()
            admin.elect_leaders(ElectionType.UNCLEAN, [Position(topic, 0)]).result(LIMIT_SECONDS)
            wait_state(cell, topic, second, {second}, set())
            produced(cell, topic, "later")
            cell.start(first)
            wait_state(cell, topic, second, {first, second}, set())
            assert values(cell, topic) == ["kept", "later"]
            admin.elect_leaders(ElectionType.PREFERRED, [Position(topic, 0)]).result(LIMIT_SECONDS)
            wait_state(cell, topic, first, {first, second}, set())
            assert values(cell, topic) == ["kept", "later"]
    cell.wait_all_in_sync()


def orders(cell: MixedKraft) -> list[tuple[int, int]]:
    """Return two brokers in both orders, of different kinds if possible."""
    first, *rest = cell.one_of_each_kind(cell.brokers)
    second = rest[0] if rest else (first + 1) % len(cell.brokers)
    return [(first, second), (second, first)]


def eligible_replicas_lead(cell: MixedKraft) -> None:
    """KIP-966 with members of both kinds: one that stopped cleanly leads again, one that was killed does not."""
    for first, second in orders(cell):
        [third] = set(cell.ids) - {first, second}
        topic = f"eligible-{first}"
        with cell.acts.during("eligible", topic, first, second, third):
            cell.create_topic(topic, [[first, second, third]], **{"min.insync.replicas": "2"})
            produced(cell, topic, "a")
            cell.kill(third)
            wait_state(cell, topic, first, {first, second}, set())
            produced(cell, topic, "b")
            cell.stop(second)
            wait_state(cell, topic, first, {first}, {second})
            cell.kill(first)
            cell.start(third)
            wait_state(cell, topic, -1, set(), {first, second})
            cell.start(second)
            wait_state(cell, topic, second, {second, third}, set())
            cell.start(first)
            wait_state(cell, topic, second, {first, second, third}, set())
            produced(cell, topic, "c")
            assert values(cell, topic) == ["a", "b", "c"]
    cell.wait_all_in_sync()
    with cell.acts.during("elect"):
        cell.elect_all_preferred()
