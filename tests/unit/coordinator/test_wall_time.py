"""Coordinators store wall-clock times; their waits follow a clock that never goes back."""

from tests.unit.coordinator.harness import SESSION_MS, T0, Harness
from tests.unit.coordinator.test_retention import CHECK_MS, RETENTION_MS, retaining
from tests.unit.coordinator.transaction_harness import T0 as PARTITION
from tests.unit.coordinator.transaction_harness import TransactionHarness

from tidegauge.record_batch import read_header
from tidegauge.transactions import TransactionState

HOUR_MS = 3_600_000


def test_a_commit_has_the_wall_clocks_time():
    """GroupMetadataManager.storeOffsets: the timestamps of the record and of the offset are time.milliseconds()."""
    broker = Harness()
    broker.wall.ahead_ms = HOUR_MS
    broker.commit(1, T0)
    view = broker.coordinator.group_view("g")
    assert view.offsets[T0].commit_timestamp_ms == broker.now_ms + HOUR_MS
    assert read_header(broker.log[-1]).max_timestamp_ms == broker.now_ms + HOUR_MS


def test_offsets_expire_by_the_wall_clock():
    """GroupMetadata.removeExpiredOffsets (KIP-211) compares with time.milliseconds()."""
    broker = retaining()
    broker.commit(1, T0)
    broker.wall.ahead_ms = RETENTION_MS
    broker.after(CHECK_MS)
    assert broker.offset(T0).offset == -1


def test_offsets_stay_while_the_wall_clock_is_behind():
    broker = retaining()
    broker.commit(1, T0)
    broker.wall.ahead_ms = -RETENTION_MS
    broker.after(RETENTION_MS + CHECK_MS)
    assert broker.offset(T0).offset == 1


def test_a_session_does_not_end_because_the_wall_clock_is_set():
    """Kafka's purgatory runs by the monotonic clock (Timer, Time.hiResClockMs)."""
    broker = Harness()
    [member] = broker.stable_group()
    broker.wall.ahead_ms = 24 * HOUR_MS
    broker.after(SESSION_MS - 1)
    assert [one.member_id for one in broker.coordinator.group_view("g").members] == [member]


def test_a_state_begins_at_the_wall_clocks_time():
    broker = Harness()
    broker.wall.ahead_ms = HOUR_MS
    broker.stable_group()
    assert broker.coordinator.group_view("g").state_since_ms == broker.now_ms + HOUR_MS


def test_a_transaction_begins_and_times_out_by_the_wall_clock():
    """TransactionStateManager.timedOutTransactions: txnStartTimestamp + txnTimeoutMs < time.milliseconds()."""
    harness = TransactionHarness()
    harness.wall.ahead_ms = HOUR_MS
    harness.init(timeout_ms=60_000)
    harness.add(PARTITION)
    described = harness.describe()
    assert described.start_time_ms == harness.now_ms + HOUR_MS
    assert described.state == TransactionState.ONGOING.value
    harness.wall.ahead_ms = 2 * HOUR_MS
    harness.after(10_000)
    assert harness.describe().state == TransactionState.COMPLETE_ABORT.value
