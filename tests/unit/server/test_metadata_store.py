"""The disk of a quorum's node: log, snapshots and quorum-state, from one process to the next (KIP-595, KIP-630)."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.record_types import encode_record
from tidegauge.kafka.metadata_records.no_op_record import NoOpRecord
from tidegauge.settings.quorum import parse_node_settings
from tidegauge_broker.log.files import DISK, Disk
from tidegauge_broker.metadata_log.formatting import Formatting
from tidegauge_broker.metadata_log.raft_records import voters_message
from tidegauge_broker.metadata_log.snapshots import SnapshotWriter
from tidegauge_broker.server.quorum.metadata_store import MetadataStore, Opened
from tidegauge_broker.server.quorum.node_properties import read_node_properties
from tidegauge_controller.raft.values import (
    Batch,
    ElectionState,
    Endpoint,
    LeaderChange,
    OffsetAndEpoch,
    ReplicaKey,
    Voter,
    VoterSet,
    VotersRecord,
)

KEYS = [ReplicaKey(3000 + n, bytes([n + 1]) * 16) for n in range(4)]
VOTERS = VoterSet.of(Voter(key, (Endpoint("CONTROLLER", "localhost", 9000),)) for key in KEYS[:3])
NO_OP = encode_record(NoOpRecord(), 0)
SETTINGS = {
    "process.roles": "controller",
    "node.id": "3000",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9000",
    "internal.metadata.log.segment.bytes": "1024",
}
Reopen = Callable[..., tuple[MetadataStore, Opened]]


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Reopen]:
    """Opens the store of a formatted directory; each call ends the process before, without closing it in order."""
    asked = Formatting("cluster", 3000, str(tmp_path), initial_voters=VOTERS)
    for name, data in asked.files_of(str(tmp_path), KEYS[0].directory_id or b"", asked.levels(), 1).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    running: list[MetadataStore] = []

    def reopen(disk: Disk = DISK, **changes: str) -> tuple[MetadataStore, Opened]:
        die()
        values, _ = parse_node_settings(SETTINGS | {name.replace("_", "."): value for name, value in changes.items()})
        store = MetadataStore(tmp_path, values, lambda: 1_000_000, disk)
        opened = store.open(VoterSet())
        running.append(store)
        return store, opened

    def die() -> None:
        while running:
            running[-1].log.abandon()
            running.pop().close()

    yield reopen
    die()


def no_ops(base_offset: int, epoch: int, count: int = 1) -> Batch:
    return Batch(base_offset, base_offset + count, epoch, payload=([NO_OP] * count,), timestamp_ms=5)


def snapshot_bytes(epoch: int, voters: VoterSet = VOTERS, last_ms: int = 7) -> bytes:
    writer = SnapshotWriter(epoch)
    return b"".join([writer.begin(last_ms, 1, voters_message(voters), 9), *writer.append([NO_OP], 9), writer.finish(9)])


def fetch(store: MetadataStore, snapshot: OffsetAndEpoch, data: bytes) -> None:
    """Write a snapshot in slices, as they come from a leader."""
    for position in range(0, len(data), 100):
        store.snapshots.write(snapshot, position, data[position : position + 100])


def test_a_formatted_directory_begins_with_its_voters(stores: Reopen):
    """The snapshot (0, 0) holds them; the log is empty, and nothing was voted."""
    _, opened = stores()
    assert opened.election == ElectionState()
    assert (opened.log.start_offset, opened.log.end_offset) == (0, 0)
    assert opened.log.snapshots == [OffsetAndEpoch(0, 0)]
    assert opened.history.current == VOTERS
    assert opened.history.version == 1
    assert opened.history.is_from_bootstrap


def test_log_epochs_voters_and_vote_survive(stores: Reopen):
    """A process begins with the flushed state of the one before."""
    store, opened = stores()
    changed = VOTERS.without(3002)
    log = [
        Batch(0, 1, 1, (LeaderChange(3000, VOTERS.keys, VOTERS.keys),)),
        no_ops(1, 1, 3),
        Batch(4, 5, 4, (VotersRecord(changed),)),
    ]
    for batch in log:
        store.append(batch)
        opened.log.append(batch)
    store.note_epochs(opened.log.epochs)
    store.flush()
    store.persist(ElectionState(4, 3001, KEYS[1]), 1, VoterSet())
    again = stores()[1]
    assert again.election == ElectionState(4, 3001, KEYS[1])
    assert (again.log.end_offset, again.log.flushed_offset) == (5, 5)
    assert again.log.epochs == [OffsetAndEpoch(0, 1), OffsetAndEpoch(4, 4)]
    assert again.history.current == changed
    assert again.history.last_voters_offset == 4


def test_a_batch_that_a_leader_sent_keeps_its_bytes(stores: Reopen):
    """Byte-equal logs: the appended bytes are the fetched ones."""
    store, _ = stores()
    store.append(no_ops(0, 1, 2))
    sent = store.read(0, 1 << 20)
    store.truncate(0)
    store.append(Batch(0, 2, 1, payload=sent))
    assert store.read(0, 1 << 20) == sent
    assert store.read(2, 1 << 20) == b""


def test_a_snapshot_takes_the_place_of_a_log_of_a_higher_epoch(stores: Reopen):
    """Uncommitted records may be of a higher epoch than the snapshot's last one: the log is dropped all the same."""
    store, _ = stores()
    store.append(no_ops(0, 9, 50))
    store.note_epochs([OffsetAndEpoch(0, 9)])
    snapshot = OffsetAndEpoch(20, 3)
    fetch(store, snapshot, snapshot_bytes(3, VOTERS.without(3001)))
    head = store.install(snapshot)
    assert (head.voter_set, head.kraft_version, head.last_contained_ms) == (VOTERS.without(3001), 1, 7)
    assert (store.log.log_start_offset, store.log.log_end_offset) == (20, 20)
    assert list(store.log.epochs) == []
    assert stat.S_IMODE(store.snapshots.path_of(snapshot).stat().st_mode) == 0o400
    opened = stores()[1]
    assert (opened.log.start_offset, opened.log.end_offset, opened.log.last_epoch) == (20, 20, 3)
    assert opened.log.snapshots == [snapshot]
    assert opened.history.current == VOTERS.without(3001)


def test_a_snapshot_whose_installation_was_interrupted_is_taken_up_at_the_start(stores: Reopen):
    """A crash between the rename and the truncation: the newest snapshot lies beyond the log (recoverSnapshots)."""
    store, _ = stores()
    store.append(no_ops(0, 1, 5))
    store.flush()
    snapshot = OffsetAndEpoch(20, 3)
    fetch(store, snapshot, snapshot_bytes(3))
    store.snapshots.finish(snapshot)
    opened = stores()[1]
    assert (opened.log.start_offset, opened.log.end_offset) == (20, 20)
    assert opened.log.snapshots == [snapshot]


def test_an_unfinished_download_leaves_nothing_behind(stores: Reopen):
    """A snapshot without its last slice has no name and no effect."""
    store, _ = stores()
    fetch(store, OffsetAndEpoch(20, 3), snapshot_bytes(3)[:150])
    assert stores()[1].log.snapshots == [OffsetAndEpoch(0, 0)]
    assert not list(store.log.directory.glob("*.part"))


def test_a_snapshot_that_is_not_whole_is_refused_and_the_log_stays(stores: Reopen):
    """A leader whose file is damaged costs this node nothing but the download."""
    store, _ = stores()
    store.append(no_ops(0, 1, 5))
    snapshot = OffsetAndEpoch(20, 3)
    fetch(store, snapshot, snapshot_bytes(3)[:-1])
    with pytest.raises(TidegaugeError) as caught:
        store.install(snapshot)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert store.log.log_end_offset == 5
    assert not list(store.log.directory.glob("*.part"))
    fetch(store, snapshot, snapshot_bytes(3))
    assert store.install(snapshot).voter_set == VOTERS, "the next one, which is whole, is installed"


def test_what_a_dead_process_left_unsynced_is_synced_before_its_successor_counts_it(stores: Reopen):
    """A fetch from the log's end acknowledges all below, and a power loss may follow."""
    synced: list[str] = []

    class NotingDisk(Disk):
        def sync(self, path: Path) -> None:
            synced.append(path.name)
            super().sync(path)

    store, opened = stores()
    store.append(no_ops(0, 1, 5))
    _, opened = stores(disk=NotingDisk())
    assert opened.log.is_flushed
    assert opened.log.end_offset == 5
    assert "00000000000000000000.log" in synced


def test_slices_of_a_snapshot_make_the_whole(stores: Reopen):
    """FetchSnapshot: any position below the size; SNAPSHOT_NOT_FOUND and POSITION_OUT_OF_RANGE otherwise (KIP-630)."""
    store, _ = stores()
    snapshot, data = OffsetAndEpoch(20, 3), snapshot_bytes(3)
    fetch(store, snapshot, data)
    store.install(snapshot)
    slices = [store.snapshots.slice_of(snapshot, position, 64) for position in range(0, len(data), 64)]
    assert {size for size, _ in slices} == {len(data)}
    assert b"".join(part for _, part in slices) == data
    for asked, position, code in (
        (snapshot, len(data), ErrorCode.POSITION_OUT_OF_RANGE),
        (OffsetAndEpoch(21, 3), 0, ErrorCode.SNAPSHOT_NOT_FOUND),
    ):
        with pytest.raises(TidegaugeError) as caught:
            store.snapshots.slice_of(asked, position, 64)
        assert caught.value.code is code


def test_cleaning_moves_the_log_start_to_the_end_of_a_snapshot_that_stays(stores: Reopen):
    """KafkaRaftLog.maybeClean: whole segments below go, the newest snapshot never does, nothing above the HW."""
    store, opened = stores()
    for offset in range(0, 100, 10):
        batch = no_ops(offset, 1, 10)
        store.append(batch)
        opened.log.append(batch)
    store.note_epochs(opened.log.epochs)
    store.flush()
    snapshots = [OffsetAndEpoch(0, 0), OffsetAndEpoch(40, 1), OffsetAndEpoch(80, 1)]
    for snapshot in snapshots[1:]:
        fetch(store, snapshot, snapshot_bytes(1))
        store.snapshots.finish(snapshot)
    assert store.clean(snapshots, 100, 8) is None, "neither too large nor too old"
    store, _ = stores(metadata_max_retention_bytes="10")
    assert store.clean(snapshots, 50, 8) == 40, "the second one lies above the high watermark"
    assert store.clean(snapshots[1:], 100, 8) == 80
    assert store.clean(snapshots[2:], 100, 8) is None, "the newest stays"
    first = store.log.segments[0].base_offset
    assert 0 < first <= 80
    opened = stores()[1]
    assert opened.log.snapshots == [OffsetAndEpoch(80, 1)]
    assert (opened.log.start_offset, opened.log.end_offset) == (80, 100)
    assert opened.log.epochs == [OffsetAndEpoch(80, 1)]


def test_a_log_without_the_snapshot_before_it_is_refused(stores: Reopen):
    """KafkaRaftLog.createLog: what came before the log's start would be missing."""
    store, _ = stores()
    snapshot = OffsetAndEpoch(20, 3)
    fetch(store, snapshot, snapshot_bytes(3))
    store.install(snapshot)
    store.append(no_ops(20, 3))
    store.flush()
    store.snapshots.path_of(snapshot).unlink()
    with pytest.raises(TidegaugeError, match="no snapshot holds what came before it"):
        stores()


def test_a_damaged_quorum_state_is_refused_with_the_way_out(stores: Reopen):
    """A node without its vote could vote twice in an epoch."""
    store, _ = stores()
    store.persist(ElectionState(3, None, KEYS[1]), 1, VoterSet())
    path = store.log.directory / "quorum-state"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(TidegaugeError, match="remove the voter from the quorum, format its directory"):
        stores()


def test_a_directory_that_is_not_formatted_is_refused(tmp_path: Path):
    """MetaPropertiesEnsemble.verify, in Kafka's words."""
    with pytest.raises(TidegaugeError, match=r"No `meta\.properties` found in"):
        read_node_properties(tmp_path)
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\n")
    with pytest.raises(TidegaugeError, match=r"lacks node\.id, cluster\.id or directory\.id"):
        read_node_properties(tmp_path)
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=x\n")
    with pytest.raises(TidegaugeError, match="it has version 0, expected 1"):
        read_node_properties(tmp_path)


def test_a_damaged_log_ends_before_the_damage_and_says_so(
    stores: Reopen, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """KafkaRaftLog.createLog recovers the whole log: a batch that differs from the written one ends it.

    The voter has less than it had acknowledged, as Kafka's would; it fetches the missing records from the leader.
    """
    store, opened = stores()
    for batch in (Batch(0, 1, 1, (LeaderChange(3000, VOTERS.keys, VOTERS.keys),)), no_ops(1, 1, 3), no_ops(4, 1)):
        store.append(batch)
        opened.log.append(batch)
    store.note_epochs(opened.log.epochs)
    store.flush()
    path = next((tmp_path / "__cluster_metadata-0").glob("*.log"))
    size = path.stat().st_size
    _, whole = stores()
    assert whole.log.end_offset == 5
    data = bytearray(path.read_bytes())
    data[size // 2] ^= 0x55
    path.write_bytes(data)
    with caplog.at_level("WARNING"):
        _, shorter = stores()
    assert 0 < shorter.log.end_offset < 5
    assert "__cluster_metadata-0" in caplog.text
    assert "truncat" in caplog.text.lower()


def test_a_damaged_snapshot_at_the_logs_start_is_refused_with_its_name(stores: Reopen, tmp_path: Path):
    """It has the voters and the metadata below the log: the node must not begin without them."""
    path = tmp_path / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    data = bytearray(path.read_bytes())
    data[80] ^= 0x55
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)
    path.write_bytes(data)
    with pytest.raises(
        TidegaugeError, match=r"00000000000000000000-0000000000\.checkpoint can't be used: .*format"
    ) as refused:
        stores()
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert path.read_bytes() == data, "nothing was changed"
