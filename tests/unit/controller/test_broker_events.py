"""Brokers register, die, bounce and shut down; a controller takes over: states, epochs, and requests, in order.

Holds KafkaController.onBrokerStartup, onBrokerFailure and onControllerFailover: the arithmetic of leader epochs, the
order of requests in a batch, the receivers of LeaderAndIsr, UpdateMetadata and StopReplica, unclean elections by
setting, lost races.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from memory_zookeeper import MemoryZooKeeper, Term, term_of_topic

from tidegauge.control import (
    NO_LEADER,
    LeaderAndIsrRequest,
    PartitionsResponse,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge.listeners import parse_listeners
from tidegauge.partition import TopicPartition
from tidegauge.znodes import (
    FEATURE,
    LOG_DIR_EVENT_NOTIFICATION,
    BrokerNode,
    PartitionStateNode,
    broker_path,
    encode_config,
    encode_log_dir_event,
    state_path,
    topic_config_path,
)
from tidegauge_controller.zookeeper.decisions.broker_events import (
    process_broker_change,
    process_broker_data,
    process_leader_and_isr_response,
    process_log_dir_notifications,
    startups_complete,
)
from tidegauge_controller.zookeeper.decisions.context import ControllerSettings, PartitionStatus, Replica, ReplicaStatus
from tidegauge_controller.zookeeper.decisions.leaders import (
    process_controlled_shutdown,
    process_unclean_election_enabled,
)
from tidegauge_controller.zookeeper.decisions.steps import ControllerMoved, DeleteNode
from tidegauge_controller.zookeeper.decisions.topic_events import process_topic_change

AT = TopicPartition("orders", 0)
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR


def term_of(
    assignment: Mapping[int, Sequence[int]] | None = None,
    *,
    brokers: Sequence[int] = (1, 2, 3),
    config: Mapping[str, str] | None = None,
    settings: ControllerSettings | None = None,
) -> Term:
    """A controller (broker 9's number, which is no broker here) with one topic; nothing sent yet."""
    term = term_of_topic("orders", assignment, brokers=brokers, config=config, settings=settings)
    term.take_sent()
    return term


def die(term: Term, *broker_ids: int) -> None:
    for broker_id in broker_ids:
        term.zookeeper.unregister_broker(broker_id)
    term.run(process_broker_change(term.context))


def come(term: Term, *broker_ids: int) -> None:
    for broker_id in broker_ids:
        term.zookeeper.register_broker(broker_id)
    term.run(process_broker_change(term.context))


def row(term: Term, at: TopicPartition = AT) -> tuple[int, tuple[int, ...], int]:
    """Leader, ISR and leader epoch; the cache agrees with ZooKeeper."""
    node = term.zookeeper.state(at)
    cached = term.context.leadership[at]
    assert (cached.leader, cached.isr, cached.leader_epoch) == (node.leader, node.isr, node.leader_epoch)
    assert cached.partition_epoch == term.zookeeper.version(at)
    return node.leader, node.isr, node.leader_epoch


def reported(sent: Sequence[tuple[int, Any]]) -> list[str]:
    """Requests in a short form: kind, receiver, what it says of AT."""
    lines: list[str] = []
    for broker_id, message in sent:
        match message:
            case LeaderAndIsrRequest(partitions=items):
                said = " ".join(f"{i.state.leader}e{i.state.leader_epoch}{' new' * i.is_new}" for i in items)
                lines.append(f"leader-and-isr>{broker_id}: {said}")
            case UpdateMetadataRequest(partitions=items, live_brokers=live):
                said = " ".join(f"{i.state.leader}e{i.state.leader_epoch}" for i in items) or "-"
                lines.append(f"metadata>{broker_id}: {said} live {','.join(str(e.broker_id) for e in live)}")
            case StopReplicaRequest(partitions=items):
                said = " ".join(f"e{i.leader_epoch}{' delete' * i.delete}" for i in items)
                lines.append(f"stop>{broker_id}: {said}")
    return lines


# A topic begins


def test_a_new_topic_gets_its_first_leaders_in_epoch_0():
    zookeeper = MemoryZooKeeper()
    for broker_id in (1, 2, 3):
        zookeeper.register_broker(broker_id)
    term = Term(zookeeper, 9).start()
    term.take_sent()
    zookeeper.add_topic("orders", {0: (2, 3)})
    term.run(process_topic_change(term.context))
    assert row(term) == (2, (2, 3), 0)
    assert zookeeper.version(AT) == 0
    assert reported(term.sent) == [
        "leader-and-isr>2: 2e0 new",
        "leader-and-isr>3: 2e0 new",
        "metadata>1: 2e0 live 1,2,3",
        "metadata>2: 2e0 live 1,2,3",
        "metadata>3: 2e0 live 1,2,3",
    ]


def test_a_new_partition_begins_with_the_live_replicas_only_or_not_at_all():
    term = term_of({0: (4, 2, 3), 1: (4, 5)})
    assert row(term) == (2, (2, 3), 0)
    other = TopicPartition("orders", 1)
    assert other not in term.context.leadership
    assert term.context.partition_status[other] is PartitionStatus.NEW
    come(term, 5)
    assert row(term, other) == (5, (5,), 0)


# The arithmetic of leader epochs


@pytest.mark.parametrize(
    ("isr", "leader", "victim", "after"),
    [
        ((1, 2, 3), 1, 1, (2, (2, 3), 6)),  # the leader, with another live member: + 1
        ((1, 2, 3), 1, 2, (1, (1, 3), 6)),  # a follower in the ISR: + 1
        ((1, 2), 1, 3, (1, (1, 2), 5)),  # a follower outside the ISR: nothing
        ((1,), 1, 1, (NO_LEADER, (1,), 6)),  # the last member: + 1, no leader, the ISR stays
    ],
)
def test_a_death_costs(isr: tuple[int, ...], leader: int, victim: int, after: tuple[int, tuple[int, ...], int]):
    term = term_of()
    node = PartitionStateNode(leader, 5, isr, 1)
    term.context.leadership[AT] = node.at_version(term.zookeeper.write_state(AT, node))
    die(term, victim)
    assert row(term) == after
    assert term.context.replica_status[Replica(AT, victim)] is ReplicaStatus.OFFLINE
    assert term.context.partition_status[AT] is (
        PartitionStatus.OFFLINE if after[0] == NO_LEADER else PartitionStatus.ONLINE
    )


def test_the_last_member_leads_again_for_another_epoch():
    """Each of "offline" and "elected again" costs an epoch; a replica outside the ISR waits."""
    term = term_of()
    assert row(term) == (1, (1, 2, 3), 0)
    die(term, 1)
    assert row(term) == (2, (2, 3), 1)
    die(term, 2)
    assert row(term) == (3, (3,), 2)
    die(term, 3)
    assert row(term) == (NO_LEADER, (3,), 3)
    come(term, 1, 2)
    assert row(term) == (NO_LEADER, (3,), 3)
    come(term, 3)
    assert row(term) == (3, (3,), 4)


def test_all_at_once_costs_one_epoch_for_each_member_that_leaves():
    term = term_of()
    die(term, 1, 2, 3)
    assert row(term) == (NO_LEADER, (3,), 3)
    assert [note.fields["strategy"] for note in term.notes[-3:]] == ["remove-from-isr"] * 3


def test_controller_and_leader_die_together_for_two_epochs():
    """The next controller removes (step 7) before it elects (step 8)."""
    term = term_of()
    term.zookeeper.unregister_broker(1)
    successor = Term(term.zookeeper, 2).start()
    assert row(successor) == (2, (2, 3), 2)
    assert term.zookeeper.state(AT).controller_epoch == 2


def test_a_fail_over_that_finds_all_alive_costs_nothing():
    term = term_of()
    successor = Term(term.zookeeper, 2).start()
    assert row(successor) == (1, (1, 2, 3), 0)


# The receivers of requests, and their order


def test_a_leaders_death():
    term = term_of()
    die(term, 1)
    assert reported(term.sent) == [
        "leader-and-isr>2: 2e1",
        "leader-and-isr>3: 2e1",
        "metadata>2: 2e1 live 2,3",
        "metadata>3: 2e1 live 2,3",
        # the dead replica goes offline: sent again (ignored, the epoch is the same); its StopReplica is dropped
        "leader-and-isr>2: 2e1",
        "leader-and-isr>3: 2e1",
        "metadata>2: 2e1 live 2,3",
        "metadata>3: 2e1 live 2,3",
    ]
    assert term.queues == {2, 3}
    header = term.sent[0][1].header
    assert (header.controller_id, header.controller_epoch, header.broker_epoch) == (9, 1, term.context.live[2].epoch)
    offline = [item.offline_replicas for _, message in term.sent[2:4] for item in message.partitions]
    assert offline == [(1,), (1,)]


def test_a_followers_death_is_sent_to_all_that_are_left():
    """The header comment speaks of the leader only; the code sends to every assigned replica but the dead one."""
    term = term_of()
    die(term, 3)
    assert reported(term.sent) == [
        "leader-and-isr>1: 1e1",
        "leader-and-isr>2: 1e1",
        "metadata>1: 1e1 live 1,2",
        "metadata>2: 1e1 live 1,2",
        "metadata>1: - live 1,2",
        "metadata>2: - live 1,2",
    ]


def test_a_death_without_replicas_is_sent_as_plain_metadata():
    term = term_of(brokers=(1, 2, 3, 4))
    die(term, 4)
    assert reported(term.sent) == [f"metadata>{i}: - live 1,2,3" for i in (1, 2, 3)]


def test_a_start_up():
    """First the live brokers to the others, all metadata to the new one, then the state of its replicas to it alone."""
    term = term_of()
    die(term, 3)
    term.take_sent()
    come(term, 3)
    assert reported(term.sent) == [
        "metadata>1: - live 1,2,3",
        "metadata>2: - live 1,2,3",
        "metadata>3: 1e1 live 1,2,3",
        "leader-and-isr>3: 1e1",
        "metadata>1: 1e1 live 1,2,3",
        "metadata>2: 1e1 live 1,2,3",
        "metadata>3: 1e1 live 1,2,3",
    ]
    assert row(term) == (1, (1, 2), 1)  # not put into the ISR
    assert term.context.replica_status[Replica(AT, 3)] is ReplicaStatus.ONLINE


def test_a_bounce_is_a_failure_and_a_start_up():
    """The same id with a larger czxid; its requests carry the new broker epoch."""
    term = term_of()
    before = term.context.live[1].epoch
    come(term, 1)
    assert row(term) == (2, (2, 3), 1)
    assert term.context.live[1].epoch > before
    assert term.queues == {1, 2, 3}
    to_one = [message for broker_id, message in term.sent if broker_id == 1]
    assert {message.header.broker_epoch for message in to_one} == {term.context.live[1].epoch}
    assert [line for line in reported(term.sent) if line.startswith("leader-and-isr>1")] == ["leader-and-isr>1: 2e1"]


def test_a_bounce_of_the_last_member_costs_two_epochs():
    term = term_of()
    die(term, 2)
    die(term, 3)
    assert row(term) == (1, (1,), 2)
    come(term, 1)
    assert row(term) == (1, (1,), 4)


def test_new_bounced_and_dead_in_one_event():
    term = term_of({0: (1, 2, 3), 1: (2, 3, 1)})
    die(term, 3)
    assert row(term) == (1, (1, 2), 1)
    term.zookeeper.unregister_broker(1)
    term.zookeeper.register_broker(2)
    term.zookeeper.register_broker(3)
    term.run(process_broker_change(term.context))
    assert term.queues == {2, 3}
    assert set(term.context.live) == {2, 3}
    # 3 came. Then 2 bounced and left the ISR of 1. Then 1 died, the last member of both.
    assert row(term) == (NO_LEADER, (1,), 3)
    assert row(term, TopicPartition("orders", 1)) == (NO_LEADER, (1,), 3)


def test_nothing_new_notifies_no_listener():
    term = term_of()
    term.run(process_broker_change(term.context))
    assert term.sent == []


# A broker's other addresses


def move(term: Term, broker_id: int, *listeners: str) -> None:
    data = BrokerNode.decode(broker_id, term.zookeeper.read(broker_path(broker_id)).data)
    at = parse_listeners(",".join(listeners), "listeners")
    term.zookeeper.set(broker_path(broker_id), replace(data, host=at[0].host, port=at[0].port, listeners=at).encode())
    term.run(process_broker_data(term.context, broker_id))


def test_a_broker_that_moved_is_announced_to_all():
    """processBrokerModification, onBrokerUpdate: UpdateMetadata without partitions; its epoch and its roles stay."""
    term = term_of()
    epoch, before = term.context.live[2].epoch, row(term)
    move(term, 2, "PLAINTEXT://public:1", "GRPC://public:2")
    assert term.context.live[2].epoch == epoch
    assert term.moved == [term.context.live[2].endpoint]
    sent = term.take_sent()
    assert [(broker_id, type(request)) for broker_id, request in sent] == [
        (broker_id, UpdateMetadataRequest) for broker_id in (1, 2, 3)
    ]
    for _, request in sent:
        assert request.partitions == ()
        assert [str(one) for one in request.live_brokers[1].listeners] == ["PLAINTEXT://public:1", "GRPC://public:2"]
    assert row(term) == before


def test_a_broker_that_moved_has_its_address_on_the_control_plane():
    term = term_of(settings=ControllerSettings(control_plane_listener="GRPC"))
    move(term, 2, "PLAINTEXT://public:1", "GRPC://inside:2")
    assert (term.context.live[2].endpoint.host, term.context.live[2].endpoint.port) == ("inside", 2)


def test_a_registration_that_says_nothing_new_notifies_no_broker():
    """Each watch calls back once when it is set."""
    term = term_of()
    term.run(process_broker_data(term.context, 2))
    assert (term.sent, term.moved) == ([], [])


def test_a_registration_of_another_incarnation_is_left_to_the_change_of_brokers():
    """A bounce is a failure and a start-up; here the new addresses come with it, and to a dead broker never."""
    term = term_of()
    term.zookeeper.register_broker(2)
    move(term, 2, "PLAINTEXT://public:1")
    term.zookeeper.unregister_broker(3)
    term.run(process_broker_data(term.context, 3))
    assert (term.sent, term.moved) == ([], [])
    term.run(process_broker_change(term.context))
    assert term.context.live[2].endpoint.host == "public"
    term.zookeeper.register_broker(3)
    term.run(process_broker_data(term.context, 3))
    assert 3 not in term.context.live


def test_a_mark_of_shutting_down_is_forgotten_with_the_broker():
    term = term_of()
    term.run(process_controlled_shutdown(term.context, 3, term.context.live[3].epoch))
    die(term, 3)
    come(term, 3)
    assert term.context.live_brokers == {1, 2, 3}


# Unclean elections


@pytest.mark.parametrize(
    ("config", "default", "elected"),
    [
        ({"unclean.leader.election.enable": "true"}, False, True),
        ({"unclean.leader.election.enable": "false"}, True, False),
        ({}, True, True),
        ({}, False, False),
    ],
)
def test_the_topics_setting_permits_else_the_clusters(config: dict[str, str], default: bool, elected: bool):
    term = term_of(config=config, settings=ControllerSettings(unclean_leader_election=default))
    for broker_id in (1, 2, 3):
        die(term, broker_id)
    come(term, 2)
    if elected:
        # Each of the three deaths costs one; then 2 alone, recovering.
        assert row(term) == (2, (2,), 4)
        assert term.zookeeper.state(AT).recovering
        assert term.notes[-1].fields["strategy"] == "unclean"
    else:
        assert row(term) == (NO_LEADER, (3,), 3)


def test_an_unreadable_setting_permits_nothing():
    term = term_of(settings=ControllerSettings(unclean_leader_election=True))
    term.zookeeper.set(topic_config_path("orders"), b"{")
    die(term, 1)
    die(term, 2)
    die(term, 3)
    come(term, 2)
    assert row(term) == (NO_LEADER, (3,), 3)
    term.zookeeper.set(topic_config_path("orders"), encode_config({}))
    come(term, 1)
    assert row(term) == (1, (1,), 4)


# Races with ZooKeeper


def test_a_lost_race_is_run_again_from_what_is_there():
    """BadVersion in an election: read again, elect again; the leader's earlier ISR change counts."""
    term = term_of()
    shrunk = PartitionStateNode(1, 0, (1, 3), 1)
    term.before_write = lambda: term.zookeeper.write_state(AT, shrunk)
    die(term, 1)
    assert row(term) == (3, (3,), 1)
    assert term.zookeeper.version(AT) == 2


def test_a_lost_race_of_a_removal_is_run_again():
    term = term_of()
    shrunk = PartitionStateNode(1, 0, (1, 3), 1)
    term.before_write = lambda: term.zookeeper.write_state(AT, shrunk)
    die(term, 2)
    assert row(term) == (1, (1, 3), 0)  # another writer had removed it: nothing to write any more


def test_an_election_that_memory_fails_is_held_again_over_what_is_there():
    """A live replica put into the ISR by hand shows in no write, so a failure is never decided on memory alone."""
    term = term_of()
    node = PartitionStateNode(1, 5, (1,), 1)
    term.context.leadership[AT] = node.at_version(term.zookeeper.write_state(AT, node))
    die(term, 1)
    assert row(term) == (NO_LEADER, (1,), 6)
    term.zookeeper.write_state(AT, PartitionStateNode(NO_LEADER, 6, (3,), 1))
    come(term, 4)
    assert row(term) == (3, (3,), 7)


def test_a_missing_state_fails_its_partition_alone():
    """The write finds the deleted znode missing, then a read does; the replica stays as it was."""
    term = term_of({0: (1, 2, 3), 1: (1, 2, 3)})
    term.zookeeper.write(DeleteNode(state_path(*AT)))
    die(term, 1)
    assert row(term, TopicPartition("orders", 1)) == (2, (2, 3), 1)
    assert term.context.partition_status[AT] is PartitionStatus.OFFLINE
    assert term.context.replica_status[Replica(AT, 1)] is ReplicaStatus.ONLINE


def test_a_state_of_a_newer_controller_is_not_touched():
    term = term_of()
    newer = PartitionStateNode(1, 7, (1, 2), 5)
    term.zookeeper.write_state(AT, newer)
    die(term, 1)
    assert term.zookeeper.state(AT) == newer


def test_a_controller_that_was_replaced_writes_nothing():
    """Every write checks the version of /controller_epoch; what it sent before stays sent."""
    term = term_of()
    Term(term.zookeeper, 2)
    with pytest.raises(ControllerMoved):
        die(term, 1)
    assert term.zookeeper.state(AT).leader == 1


# Fail-over


def test_a_failover_sends_the_live_brokers_and_all_partitions_first_then_each_replica_its_state():
    """A broker that has just started would call each topic unknown between the first request and step 7's."""
    term = term_of()
    die(term, 3)
    successor = Term(term.zookeeper, 9).start()
    assert reported(successor.sent) == [
        "metadata>1: 1e1 live 1,2",
        "metadata>2: 1e1 live 1,2",
        "leader-and-isr>1: 1e1",
        "leader-and-isr>2: 1e1",
        "metadata>1: 1e1 live 1,2",
        "metadata>2: 1e1 live 1,2",
        # replica 3 is offline: not in the ISR, so nothing is written; sent again
        "leader-and-isr>1: 1e1",
        "leader-and-isr>2: 1e1",
        "metadata>1: 1e1 live 1,2",
        "metadata>2: 1e1 live 1,2",
    ]
    assert {message.header.controller_epoch for _, message in successor.sent} == {2}
    assert FEATURE in term.zookeeper.nodes


def test_a_fail_over_brings_waiting_partitions_online():
    """A partition whose topic was written but never begun, and one whose last member has returned meanwhile."""
    term = term_of()
    for broker_id in (1, 2, 3):
        die(term, broker_id)
    term.zookeeper.add_topic("later", {0: (3, 2)})
    term.zookeeper.register_broker(3)
    successor = Term(term.zookeeper, 9).start()
    assert row(successor) == (3, (3,), 4)
    assert row(successor, TopicPartition("later", 0)) == (3, (3,), 0)


def test_a_topic_without_an_id_gets_one_and_old_notifications_go():
    term = term_of()
    path = f"{LOG_DIR_EVENT_NOTIFICATION}/log_dir_event_0000000000"
    term.zookeeper.create(path, encode_log_dir_event(1))
    term.zookeeper.nodes["/brokers/topics/orders"].data = b'{"version":1,"partitions":{"0":[1,2,3]}}'
    successor = Term(term.zookeeper, 9).start()
    assert len(successor.context.topic_ids["orders"]) == 22
    assert successor.context.topic_ids["orders"].encode() in term.zookeeper.nodes["/brokers/topics/orders"].data
    assert path not in term.zookeeper.nodes


# Failed log directories


def test_a_failed_directory_takes_its_replicas_offline():
    """The response to LeaderAndIsr names the broker's offline replicas; the controller takes them offline, too."""
    term = term_of()
    path = f"{LOG_DIR_EVENT_NOTIFICATION}/log_dir_event_0000000000"
    term.zookeeper.create(path, encode_log_dir_event(1))
    term.run(process_log_dir_notifications(term.context))
    assert [line for line in reported(term.take_sent()) if "leader-and-isr" in line] == ["leader-and-isr>1: 1e0"]
    assert path not in term.zookeeper.nodes
    term.run(process_leader_and_isr_response(term.context, 1, PartitionsResponse(partitions={AT: STORAGE})))
    assert row(term) == (2, (2, 3), 1)
    assert "stop>1: e1" in reported(term.sent)
    assert term.sent[-1][1].partitions[0].topic_partition == AT
    # Known already: nothing more; another partition's response does not make it healthy.
    term.take_sent()
    term.run(process_leader_and_isr_response(term.context, 1, PartitionsResponse(partitions={AT: STORAGE})))
    other = PartitionsResponse(partitions={TopicPartition("x", 0): ErrorCode.NONE})
    term.run(process_leader_and_isr_response(term.context, 1, other))
    assert (term.sent, term.context.offline_directories[1]) == ([], {AT})
    # The log directory is repaired by a restart.
    come(term, 1)
    assert term.context.is_online(1, AT)


@pytest.mark.parametrize("error", [ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH])
def test_a_response_that_failed_as_a_whole_says_nothing_of_log_directories(error: ErrorCode):
    term = term_of()
    term.run(process_leader_and_isr_response(term.context, 1, PartitionsResponse(error, {AT: STORAGE})))
    assert term.context.offline_directories.get(1, set()) == set()


def test_unclean_elections_that_become_allowed_elect_at_once():
    """The setting, switched on for a topic or the cluster, brings leaderless partitions a leader."""
    term = term_of({0: (1, 2)}, brokers=(1, 2))
    die(term, 2)
    die(term, 1)
    come(term, 2)
    term.run(process_unclean_election_enabled(term.context, "orders"))
    assert row(term)[0] == NO_LEADER
    path = topic_config_path("orders")
    term.zookeeper.set(path, encode_config({"unclean.leader.election.enable": "true"}))
    term.run(process_unclean_election_enabled(term.context, "another"))
    assert row(term)[0] == NO_LEADER
    term.run(process_unclean_election_enabled(term.context, "orders"))
    assert row(term)[:2] == (2, (2,))


def test_a_creation_whose_response_was_lost_counts_and_anothers_does_not():
    """A create that is sent twice meets its own first success; what else is there is not touched."""
    zookeeper = MemoryZooKeeper()
    for broker_id in (1, 2):
        zookeeper.register_broker(broker_id)
    term = Term(zookeeper).start()
    zookeeper.add_topic("orders", {0: (1, 2), 1: (2, 1)})
    second = TopicPartition("orders", 1)
    own = PartitionStateNode(1, 0, (1, 2), term.context.epoch)
    anothers = PartitionStateNode(1, 0, (1,), term.context.epoch)
    for index, state in enumerate((own, anothers)):
        zookeeper.ensure(state_path("orders", index))
        zookeeper.nodes[state_path("orders", index)].data = state.encode()
    term.run(process_topic_change(term.context))
    status = term.context.partition_status
    assert (status[AT], status[second]) == (PartitionStatus.ONLINE, PartitionStatus.NEW)
    partitions = {
        e.state.topic_partition for _, m in term.sent if isinstance(m, LeaderAndIsrRequest) for e in m.partitions
    }
    assert partitions == {AT}
    assert zookeeper.state(second) == anothers


# A start is over


def test_a_broker_is_notified_once_that_its_start_is_over_after_all_that_it_brings():
    """No Kafka rule: what ``tidegauge.ready`` waits for. A bounce, or another controller, tells it again."""
    term = term_of({0: (1, 2)}, brokers=(1, 2))
    requests, known = startups_complete(term.context, {})
    assert reported(requests) == ["metadata>1: - live 1,2", "metadata>2: - live 1,2"]
    assert all(message.startup_complete for _, message in requests)
    assert {message.header.broker_epoch for _, message in requests} == set(known.values())
    assert startups_complete(term.context, known) == ([], known)
    die(term, 2)
    requests, known = startups_complete(term.context, known)
    assert (requests, set(known)) == ([], {1})
    term.zookeeper.register_broker(2)
    bounced = term.zookeeper.register_broker(1)
    term.run(process_broker_change(term.context))
    assert not [message for _, message in term.take_sent() if getattr(message, "startup_complete", False)]
    requests, known = startups_complete(term.context, known)
    assert reported(requests) == ["metadata>1: - live 1,2", "metadata>2: - live 1,2"]
    assert known[1] == bounced
    assert len(startups_complete(term.context, {})[0]) == 2
