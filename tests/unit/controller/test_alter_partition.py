"""AlterPartition on the controller: the checks in Kafka's order, the write, its races (KIP-497).

Without the compare-and-set on the partition epoch, and without any one of the checks, a row of the table fails.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from memory_zookeeper import MemoryZooKeeper, Term

from tidegauge.cluster_metadata import Leadership
from tidegauge.control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrProposal,
    IsrVerdict,
    UpdateMetadataRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.znodes import PartitionStateNode
from tidegauge_controller.zookeeper.decisions.alter_partition import process_alter_partition
from tidegauge_controller.zookeeper.decisions.context import ControllerSettings
from tidegauge_controller.zookeeper.decisions.topic_events import process_topic_change

AT = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
NONE = ErrorCode.NONE


def term_of(*, isr: tuple[int, ...] = (1, 2, 3), recovering: bool = False) -> Term:
    """Return a term: brokers 1 to 4, leader 1 in epoch 2."""
    zookeeper = MemoryZooKeeper()
    for broker_id in (1, 2, 3, 4):
        zookeeper.register_broker(broker_id)
    term = Term(zookeeper).start()
    zookeeper.add_topic(AT.topic, {0: (1, 2, 3), 1: (1, 2, 3)})
    term.run(process_topic_change(term.context))
    for at in (AT, OTHER):
        for leader_epoch in (1, 2):
            node = PartitionStateNode(1, leader_epoch, isr, 1, recovering)
            term.context.leadership[at] = node.at_version(zookeeper.write_state(at, node))
    assert term.zookeeper.version(AT) == 2
    term.take_sent()
    term.writes.clear()
    return term


def proposal(term: Term, at: TopicPartition = AT, **changes: object) -> IsrProposal:
    base = IsrProposal(at, term.context.topic_ids["orders"], leader_epoch=2, new_isr=(1, 2), partition_epoch=2)
    return replace(base, **changes)


def ask(term: Term, *proposals: IsrProposal, broker_id: int = 1, broker_epoch: int | None = None) -> object:
    epoch = term.context.live[1].epoch if broker_epoch is None else broker_epoch
    response: AlterPartitionResponse = term.run(
        process_alter_partition(term.context, AlterPartitionRequest(broker_id, epoch, list(proposals)))
    )
    return response


def test_a_proposal_is_written_and_the_response_has_the_new_partition_epoch():
    term = term_of()
    assert ask(term, proposal(term)) == AlterPartitionResponse(NONE, [IsrVerdict(AT, NONE, 1, 2, (1, 2), 3, False)])
    assert term.zookeeper.state(AT) == PartitionStateNode(1, 2, (1, 2), 1)
    assert term.zookeeper.version(AT) == 3
    assert term.context.leadership[AT].partition_epoch == 3


def test_no_leader_and_isr_follows_but_all_learn_the_metadata():
    """The leader epoch stays; brokers that shut down are notified as well."""
    term = term_of()
    term.context.shutting_down.add(4)
    ask(term, proposal(term))
    assert [(receiver, type(message)) for receiver, message in term.sent] == [
        (i, UpdateMetadataRequest) for i in (1, 2, 3, 4)
    ]
    assert [item.state.isr for item in term.sent[0][1].partitions] == [(1, 2)]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"topic_id": "B" * 22}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"leader_epoch": 3}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 3}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 1}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"new_isr": (1, 9)}, ErrorCode.INELIGIBLE_REPLICA),
        ({"recovering": True}, ErrorCode.INVALID_REQUEST),
        ({"recovering": True, "new_isr": (1,)}, ErrorCode.INVALID_REQUEST),
        # Of two faults the earlier check speaks.
        ({"topic_id": "B" * 22, "leader_epoch": 1}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"leader_epoch": 1, "partition_epoch": 3}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 1, "partition_epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 1, "new_isr": (1, 9)}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"recovering": True, "new_isr": (1, 9)}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_refusals(changes: dict[str, object], error: ErrorCode):
    term = term_of()
    response = ask(term, proposal(term, **changes))
    assert response == AlterPartitionResponse(NONE, [IsrVerdict(AT, error)])
    assert term.writes == []
    assert term.zookeeper.version(AT) == 2
    assert {type(message) for _, message in term.sent} == {UpdateMetadataRequest}  # rejected ones included


def test_an_unknown_partition():
    term = term_of()
    unknown = TopicPartition("orders", 7)
    response = ask(term, proposal(term, unknown))
    assert response == AlterPartitionResponse(NONE, [IsrVerdict(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])


def test_a_joining_replica_must_be_in_the_incarnation_in_which_it_fetched():
    """KIP-903: since a restart it may lack what it had. Kafka's controller in ZooKeeper mode does not ask."""
    term = term_of(isr=(1, 2))
    epoch = term.context.live[3].epoch
    joins = proposal(term, new_isr=(1, 2, 3), joiner_epoch=epoch - 1)
    assert ask(term, joins).partitions[0].error is ErrorCode.INELIGIBLE_REPLICA
    assert term.writes == []
    kafkas = term_of(isr=(1, 2))
    kafkas.context.settings = ControllerSettings(trusts_restarted_brokers=True)
    assert ask(kafkas, joins).partitions[0].error is NONE
    assert ask(term, replace(joins, joiner_epoch=epoch)).partitions[0].error is NONE
    stays = proposal(term, new_isr=(1, 3), partition_epoch=3, joiner_epoch=epoch - 1)
    assert ask(term, stays).partitions[0].error is NONE, "3 is a member already"


def test_every_member_must_be_alive_also_those_that_stay():
    """The code tests the complete proposed ISR, whatever its comment says."""
    term = term_of()
    del term.context.live[3]
    term.context.shutting_down.add(2)
    assert ask(term, proposal(term, new_isr=(1, 3))).partitions[0].error is ErrorCode.INELIGIBLE_REPLICA
    assert ask(term, proposal(term, new_isr=(1, 2))).partitions[0].error is ErrorCode.INELIGIBLE_REPLICA
    assert ask(term, proposal(term, new_isr=(1,))).partitions[0].error is NONE


def test_what_is_so_already_succeeds_without_a_write():
    """Retries are idempotent, also with the partition epoch from before the change."""
    term = term_of()
    ask(term, proposal(term))
    term.writes.clear()
    response = ask(term, proposal(term, partition_epoch=2))
    assert response == AlterPartitionResponse(NONE, [IsrVerdict(AT, NONE, 1, 2, (1, 2), 3, False)])
    assert term.writes == []


def test_a_recovery_ends_with_the_leaders_next_proposal():
    """leader_recovery_state returns to 0; while it lasts, the ISR may not grow."""
    term = term_of(isr=(1,), recovering=True)
    grown = ask(term, proposal(term, new_isr=(1, 2), recovering=True))
    assert grown.partitions[0].error is ErrorCode.INVALID_REQUEST
    assert ask(term, proposal(term, new_isr=(1,), recovering=True)).partitions[0].error is NONE
    assert term.zookeeper.version(AT) == 2  # nothing new
    assert ask(term, proposal(term, new_isr=(1, 2))).partitions[0].error is NONE
    assert not term.zookeeper.state(AT).recovering


@pytest.mark.parametrize(("broker_id", "offset"), [(1, -1), (1, 1), (7, 0)])
def test_the_broker_epoch_must_be_equal(broker_id: int, offset: int):
    term = term_of()
    epoch = term.context.live[1].epoch + offset
    response = ask(term, proposal(term), broker_id=broker_id, broker_epoch=epoch)
    assert response == AlterPartitionResponse(ErrorCode.STALE_BROKER_EPOCH)
    assert (term.writes, term.sent) == ([], [])


def test_partitions_are_judged_one_by_one():
    term = term_of()
    response = ask(term, proposal(term, leader_epoch=1), proposal(term, OTHER))
    assert [(verdict.topic_partition, verdict.error) for verdict in response.partitions] == [
        (AT, ErrorCode.FENCED_LEADER_EPOCH),
        (OTHER, NONE),
    ]
    assert (term.zookeeper.version(AT), term.zookeeper.version(OTHER)) == (2, 3)


def test_a_state_that_changed_meanwhile_is_not_overwritten():
    """M8: the write expects the known version; the controller takes over what it finds instead."""
    term = term_of()
    intruder = PartitionStateNode(2, 3, (2, 3), 1)
    term.before_write = lambda: term.zookeeper.write_state(AT, intruder)
    response = ask(term, proposal(term))
    assert response.partitions[0].error is ErrorCode.INVALID_UPDATE_VERSION
    assert term.zookeeper.state(AT) == intruder
    assert term.context.leadership[AT] == Leadership(2, 3, (2, 3), False, 3, 1)


def test_a_write_whose_response_was_lost_counts_as_done():
    """The version differs since the very same state was written: that is success."""
    term = term_of()
    term.before_write = lambda: term.zookeeper.write_state(AT, PartitionStateNode(1, 2, (1, 2), 1))
    response = ask(term, proposal(term))
    assert response == AlterPartitionResponse(NONE, [IsrVerdict(AT, NONE, 1, 2, (1, 2), 3, False)])
