"""Commits and fetches of offsets in a consumer group, by member epochs (KIP-848, KIP-1251)."""

from tests.unit.coordinator.consumer_groups.consumer_harness import T4, ConsumerHarness, owned

from tidegauge.errors import ErrorCode
from tidegauge.groups import OffsetCommit, OffsetFetch, OffsetToCommit
from tidegauge.partition import TopicPartition

PARTITIONS = [TopicPartition("t4", number) for number in range(4)]


def commit(broker: ConsumerHarness, member: str, epoch: int, *partitions: int, knows_epochs: bool = True):
    """Commit for partitions of t4 and return the errors."""
    offsets = tuple(OffsetToCommit(PARTITIONS[number], 1) for number in partitions)
    request = OffsetCommit("g", offsets, epoch, member, knows_member_epochs=knows_epochs)
    return set(broker.ask(request).partitions.values())


def rebalanced() -> ConsumerHarness:
    """Make a group at epoch 3: member a has kept 0 and 1 since epoch 2, b has got 2 and 3 at epoch 3."""
    broker = ConsumerHarness()
    broker.enter("a", "t4")
    broker.enter("b", "t4")
    broker.beat("a", 2)
    broker.beat("a", 2, owned=owned(T4, 0, 1))
    broker.beat("b", 3)
    return broker


def test_with_its_own_epoch_a_member_commits_any_partition():
    broker = rebalanced()
    assert commit(broker, "a", 3, 0, 3) == {ErrorCode.NONE}
    assert broker.offset(PARTITIONS[3]).offset == 1


def test_with_an_older_epoch_a_member_commits_what_it_has_had_since_then():
    broker = rebalanced()
    assert commit(broker, "a", 2, 0, 1) == {ErrorCode.NONE}
    assert commit(broker, "a", 1, 0) == {ErrorCode.STALE_MEMBER_EPOCH}
    assert commit(broker, "b", 2, 2) == {ErrorCode.STALE_MEMBER_EPOCH}


def test_one_partition_that_is_refused_refuses_the_whole_request():
    broker = rebalanced()
    assert commit(broker, "a", 2, 0, 2) == {ErrorCode.STALE_MEMBER_EPOCH}
    assert broker.offset(PARTITIONS[0]).offset == -1


def test_partitions_that_are_pending_revocation_are_committed():
    broker = ConsumerHarness()
    broker.enter("a", "t4")
    broker.enter("b", "t4")
    broker.beat("a", 2)
    assert commit(broker, "a", 2, 2, 3) == {ErrorCode.NONE}


def test_who_is_no_member_or_too_old_or_too_new_commits_nothing():
    broker = rebalanced()
    assert commit(broker, "z", 3, 0) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert commit(broker, "", -1, 0) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert commit(broker, "a", 4, 0) == {ErrorCode.STALE_MEMBER_EPOCH}
    assert commit(broker, "a", 3, 0, knows_epochs=False) == {ErrorCode.UNSUPPORTED_VERSION}
    broker.beat("a", -1)
    broker.beat("b", -1)
    assert commit(broker, "", -1, 0) == {ErrorCode.NONE}


def test_a_group_that_does_not_exist_refuses_a_commit_by_epoch():
    broker = ConsumerHarness()
    assert commit(broker, "a", 1, 0) == {ErrorCode.GROUP_ID_NOT_FOUND}
    assert commit(broker, "a", 1, 0, knows_epochs=False) == {ErrorCode.ILLEGAL_GENERATION}


def test_a_fetch_needs_the_members_epoch_exactly():
    broker = rebalanced()
    for member, epoch, error in (
        (None, -1, ErrorCode.NONE),
        ("a", 3, ErrorCode.NONE),
        ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 4, ErrorCode.STALE_MEMBER_EPOCH),
        ("z", 3, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        fetched = broker.ask(OffsetFetch("g", (PARTITIONS[0],), member_id=member, member_epoch=epoch))
        assert fetched.error is error


def test_a_transactions_commit_of_an_older_epoch_gets_the_error_that_producers_know():
    broker = rebalanced()
    for epoch, error in ((3, ErrorCode.NONE), (2, ErrorCode.ILLEGAL_GENERATION)):
        token = broker.commit_transactional(partition=PARTITIONS[3], member_id="a", generation=epoch)
        assert set(broker.response_to(token).partitions.values()) == {error}
    assert broker.complete_transaction()
    assert broker.offset(PARTITIONS[3]).offset == 1
