"""The rules that statements about a share partition name, and their words. Pure.

Source of the rules: KIP-932; SharePartition, SharePartitionManager, DelayedShareFetch and ShareCoordinatorShard of
Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge_client.share_views import Records

MAX_NAMED = 10
"""Maximum number of ranges of offsets that a sentence names."""

RULE_LEADER = (
    "members fetch from the leader of the partition, which keeps in memory the records in flight; it does not look at "
    "the group's members or their assignment (SharePartitionManager)"
)
RULE_LOAD = (
    "a share partition is made at the first fetch that its partition's leader gets, in the leader epoch of that "
    "moment, and reads its state from the share coordinator; it is dropped when the last session of the group at the "
    "broker ends with its connection (SharePartitionManager.getOrCreateSharePartition)"
)
RULE_FENCED = (
    "a leader that reads the state raises its leader epoch, and the share coordinator refuses the writes of former "
    "leaders with FENCED_LEADER_EPOCH (ShareCoordinatorShard.maybeGetWriteStateError)"
)
RULE_STATE_TOPIC = "the first FindCoordinator for a share partition creates __share_group_state"
RULE_STATE_COORDINATOR = (
    "the share coordinator is the leader of the partition of __share_group_state to which group, topic id and "
    "partition hash; without one writes are tried again for a while and then end with COORDINATOR_NOT_AVAILABLE "
    "(PersisterStateManager)"
)
RULE_MIN_ISR = (
    "states are appended with acks=all, so that below min.insync.replicas an acknowledgement is not responded to "
    "(CoordinatorRuntime)"
)
RULE_INITIALIZED = (
    "the group coordinator has a state begun after a heartbeat of a member that subscribes to the topic, or by "
    "AlterShareGroupOffsets; without one a fetch gets UNKNOWN_SERVER_ERROR "
    "(GroupCoordinatorService.persisterInitialize)"
)
RULE_REFUSED = "a state whose record cannot be read is out of service until it is initialized again"
RULE_KEPT = (
    "acquiring is never written; acknowledgements, releases and time-outs are, and a delivery counts for good with the "
    "next of these of its record. The start offset is written with the next write after it has moved "
    "(SharePartition.writeShareGroupState)"
)
RULE_RESET = (
    "until the first acknowledgement or release is written, each leader that loads the state begins where "
    "share.auto.offset.reset says at that moment: latest is the high watermark then "
    "(SharePartition.startOffsetDuringInitialization)"
)
RULE_UNWRITTEN = (
    "an acknowledgement is responded to when the share coordinator has written it; a leader that dies before that has "
    "its records delivered again (SharePartition.rollbackOrProcessStateUpdates)"
)
RULE_WINDOW = (
    "the start offset moves over records that are acknowledged or archived, up to the first that is neither "
    "(SharePartition.maybeUpdateCachedStateAndOffsets)"
)
RULE_LIMIT = (
    "from start to end there are at most share.partition.max.record.locks offsets, completed ones behind an unfinished "
    "one included; the last batch may go beyond (SharePartition.canAcquireRecords)"
)
RULE_ACQUIRED = (
    "a record that a member has acquired is given to no other one until the member acknowledges or releases it, its "
    "connection closes, or share.record.lock.duration.ms are over (SharePartition.acquire)"
)
RULE_EXPIRED = "a lock that ends while a change is being written waits for its outcome (SharePartition)"
RULE_AVAILABLE = (
    "records that were released, or whose locks have ended, come before those that were never delivered "
    "(SharePartition.nextFetchOffset)"
)
RULE_LAST = (
    "a record that is given back is archived when it was delivered share.delivery.count.limit times, and the last "
    "delivery gives it alone (SharePartition.acquireSubsetBatchRecords)"
)
RULE_ACKNOWLEDGED = (
    "an acknowledged record is not delivered again unless the group's offset is altered; it stays in the window while "
    "one before it is not done (SharePartition.acknowledge)"
)
RULE_ARCHIVED = (
    "a record is archived when a member rejects it, when a member says that its offset is a gap, or when it was "
    "delivered share.delivery.count.limit times"
)
RULE_ARCHIVED_BY_LOG = (
    "available records before the log start and aborted transactions' records are archived in memory, which is "
    "not written (SharePartition.updateCacheAndOffsets, filterAbortedTransactionalAcquiredRecords)"
)
RULE_UNKNOWN = (
    "records between the ones in the state that was read may have been delivered or not, so they are acquired as if "
    "they were new (SharePartition, initialReadGapOffset)"
)
RULE_NONE = "offsets without a record, of markers and of what compaction removed, are never acquired once passed"
RULE_COMMITTED = (
    "a group with share.isolation.level=read_committed is given records up to the last stable offset, others up to the "
    "high watermark, open and aborted transactions' included (DelayedShareFetch)"
)


def named(records: Sequence[Records], *, counts: bool = True) -> str:
    """Return offsets in words, with their delivery counts if wanted."""
    shown = [f"{one.offsets} ({times(one.delivery_count)})" if counts else one.offsets for one in records[:MAX_NAMED]]
    return ", ".join([*shown, *(["..."] if len(records) > MAX_NAMED else [])])


def times(count: int) -> str:
    """Return how often records were delivered, in words."""
    return {0: "never delivered", 1: "delivered once", 2: "delivered twice"}.get(count, f"delivered {count} times")


def size_of(records: Sequence[Records]) -> int:
    """Return the number of offsets."""
    return sum(one.size for one in records)
