"""Log directories and logs of a broker (LogManager)."""

import subprocess
import sys
import threading
from random import Random

import pytest
from tests.unit.log.crash_disk import JournalDisk

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import patch, read_header
from tidegauge.settings import parse_broker_settings, parse_topic_settings
from tidegauge_broker.log.files import StorageError
from tidegauge_broker.log.log_directory import deleted_name
from tidegauge_broker.log.manager import LogManager

OTHER = TopicPartition("payments", 1)
OTHER_PROCESS = """
import sys
from pathlib import Path
from tidegauge.errors import TidegaugeError
from tidegauge_broker.log.log_directory import LogDirectory
try:
    LogDirectory(Path(sys.argv[1])).lock()
except TidegaugeError as error:
    print(error.message)
else:
    print("got it")
"""


class AllNames(Random):
    """Of the changes of names a loss of power takes all that were not synced."""

    def choice(self, seq):
        return seq[1]


def opened(*directories, now_ms=lambda: 1_700_000_000_000, **settings):
    broker, _ = parse_broker_settings({name.replace("_", "."): value for name, value in settings.items()})
    return LogManager.open(
        directories,
        broker_id=1,
        cluster_id="abcdefghijklmnopqrstuv",
        broker=broker,
        topic_values=lambda _topic: parse_topic_settings({}, broker),
        now_ms=now_ms,
    )


def test_a_directory_in_use_is_refused_to_another_process(bench):
    bench.open()
    command = [sys.executable, "-c", OTHER_PROCESS, str(bench.directory)]
    reported = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert reported.startswith(
        f"Failed to acquire lock on file .lock in {bench.directory}: another broker process is using"
    )
    bench.stop()
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "got it\n"


def test_a_directory_in_use_is_refused_to_this_process_too(bench):
    bench.open()
    with pytest.raises(TidegaugeError, match="Failed to acquire lock") as refusal:
        opened(bench.directory)
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_refused_start_leaves_no_lock_behind(bench, tmp_path):
    bench.open()
    with pytest.raises(TidegaugeError, match="Failed to acquire lock"):
        opened(tmp_path / "second", bench.directory)
    opened(tmp_path / "second").close({})


def test_a_directory_on_which_apache_kafka_runs_is_refused(bench, monkeypatch):
    """Java's FileChannel.tryLock is a POSIX lock, which flock does not see on Linux (LogManager.lockLogDirs)."""

    def locked(*_):
        raise BlockingIOError

    with monkeypatch.context() as patch:
        patch.setattr("tidegauge_broker.log.log_directory.fcntl.lockf", locked)
        with pytest.raises(TidegaugeError, match="Failed to acquire lock"):
            bench.open()
    bench.manager = None
    bench.open()


def test_the_directory_of_another_broker_is_refused(bench):
    bench.open(broker_id=1)
    bench.stop()
    with pytest.raises(TidegaugeError, match=r"Stored node id 1 doesn't match previous node id 2 in .*meta.properties"):
        bench.open(broker_id=2)
    bench.manager = None
    bench.open(broker_id=1)


def test_the_directory_of_another_cluster_is_refused(bench):
    bench.open()
    bench.stop()
    with pytest.raises(TidegaugeError, match=r"expected zzzz.*, but read abcdefghijklmnopqrstuv") as refusal:
        bench.open(cluster_id="zzzzzzzzzzzzzzzzzzzzzz")
    assert refusal.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    bench.manager = None


def test_a_path_that_is_no_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TidegaugeError, match="cannot be used: File exists; check the path"):
        opened(tmp_path / "file")


def test_a_directory_with_something_else_in_it_is_refused(bench):
    bench.open()
    bench.stop()
    (bench.directory / "pictures").mkdir()
    with pytest.raises(TidegaugeError, match="'pictures' is not in the form of topic-partition"):
        bench.open()
    bench.manager = None


def test_the_same_partition_in_two_directories_is_refused(tmp_path):
    for name in ("a", "b"):
        manager = opened(tmp_path / name)
        manager.get_or_create(OTHER, "", is_new=True)
        manager.close({})
    with pytest.raises(TidegaugeError, match="Duplicate log directories for payments-1"):
        opened(tmp_path / "a", tmp_path / "b")


def test_new_logs_go_to_the_directory_with_the_fewest(tmp_path):
    manager = opened(tmp_path / "a", tmp_path / "b")
    logs = [manager.get_or_create(TopicPartition("t", at), "", is_new=True) for at in range(4)]
    assert sorted(log.directory.parent.name for log in logs) == ["a", "a", "b", "b"]
    manager.close({})
    manager = opened(tmp_path / "a", tmp_path / "b")
    assert sorted(manager.logs) == [TopicPartition("t", at) for at in range(4)]
    manager.close({})


def test_a_directory_that_cannot_be_used_is_offline_from_the_start(tmp_path):
    """LogManager.createAndValidateLogDirs: as long as one directory is left the broker starts; what may lie in the
    failed one is not created again.
    """
    manager = opened(tmp_path / "a")
    manager.get_or_create(OTHER, "", is_new=True)
    manager.close({})
    (tmp_path / "file").write_text("")
    manager = opened(tmp_path / "file", tmp_path / "a")
    assert manager.offline_directories == [tmp_path / "file"]
    assert list(manager.logs) == [OTHER]
    with pytest.raises(StorageError, match="Can not create log for t-0"):
        manager.get_or_create(TopicPartition("t", 0), "", is_new=False)
    manager.close({})


@pytest.mark.parametrize("broken", ["meta.properties", "recovery-point-offset-checkpoint"])
def test_a_directory_that_cannot_be_read_is_offline_from_the_start(tmp_path, broken):
    for name in ("a", "b"):
        manager = opened(tmp_path / name)
        manager.get_or_create(TopicPartition(name, 0), "", is_new=True)
        manager.close({})
    (tmp_path / "a" / broken).unlink(missing_ok=True)
    (tmp_path / "a" / broken).mkdir()
    manager = opened(tmp_path / "a", tmp_path / "b")
    assert manager.offline_directories == [tmp_path / "a"]
    assert list(manager.logs) == [TopicPartition("b", 0)]
    manager.close({})
    with pytest.raises(StorageError):
        opened(tmp_path / "a")


def test_all_checkpoint_files_are_there_from_the_start(bench):
    """CheckpointFile's constructor makes them, empty."""
    bench.open()
    names = ["replication", "recovery-point", "log-start", "cleaner"]
    found = {path.name: path.read_text() for path in bench.directory.glob("*-offset-checkpoint")}
    assert found == {f"{name}-offset-checkpoint": "" for name in names}
    assert (bench.log().directory / "leader-epoch-checkpoint").read_text() == ""


def test_the_topic_id_is_kept_and_another_is_refused(bench):
    log = bench.log()
    assert (log.directory / "partition.metadata").read_text() == "version: 0\ntopic_id: topicidtopicidtopicidt"
    assert bench.restart().topic_id == "topicidtopicidtopicidt"
    assert bench.manager.get_or_create(bench.name, "", is_new=False) is bench.log()
    with pytest.raises(TidegaugeError, match="does not match the topic id for partition orders-0") as refusal:
        bench.manager.get_or_create(bench.name, "anotheranotheranothera", is_new=False)
    assert refusal.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_log_that_may_lie_in_an_offline_directory_is_not_made_elsewhere(tmp_path):
    """Else a replica would come back empty and think that it had never held anything."""
    manager = opened(tmp_path / "a", tmp_path / "b")
    first = manager.get_or_create(OTHER, "", is_new=True)
    first.log_directory.failed(OSError(5, "Input/output error"), "testing")
    assert manager.offline_directories == [first.directory.parent]
    with pytest.raises(StorageError, match="already offline"):
        manager.get_or_create(OTHER, "", is_new=False)
    name = TopicPartition("t", 0)
    with pytest.raises(StorageError, match="Can not create log for t-0 because log directories"):
        manager.get_or_create(name, "", is_new=False)
    assert manager.get_or_create(name, "", is_new=True).directory.parent != first.directory.parent
    manager.close({})
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists() != (tmp_path / "a" / ".kafka_cleanshutdown").exists()


def test_high_watermarks_come_back_clamped_to_the_log(bench, batch):
    bench.append(batch(5))
    bench.manager.note_high_watermarks({bench.name: 4, OTHER: 9})
    bench.manager.write_high_watermarks()
    assert (bench.directory / "replication-offset-checkpoint").read_text() == "0\n1\norders 0 4\n"
    bench.restart(clean=False)
    assert bench.manager.loaded(bench.name).high_watermark == 4
    bench.log().truncate_to(3)
    assert bench.manager.loaded(bench.name).high_watermark == 3
    bench.log().truncate_fully(9)
    loaded = bench.manager.loaded(bench.name)
    assert (loaded.log_start_offset, loaded.high_watermark, loaded.log_end_offset) == (9, 9, 9)
    assert loaded.producer_state is bench.log().producer_state


def test_a_checkpoint_never_stands_above_the_logs_end(bench, batch):
    """Else records written after a loss would count as committed when the process dies before the next checkpoint."""
    checkpoint = bench.directory / "replication-offset-checkpoint"
    bench.append(batch(5))
    bench.append(batch(5))
    bench.manager.note_high_watermarks({bench.name: 9})
    bench.manager.write_high_watermarks()
    bench.manager.lower_high_watermark(bench.name, 9)
    assert checkpoint.read_text() == "0\n1\norders 0 9\n"
    bench.manager.lower_high_watermark(bench.name, 5)
    assert checkpoint.read_text() == "0\n1\norders 0 5\n"
    bench.log().truncate_to(5)
    bench.append(batch(5))
    bench.restart(clean=False)
    assert bench.manager.loaded(bench.name).high_watermark == 5
    checkpoint.write_text("0\n1\norders 0 12\n")  # a power loss took records, and not the checkpoint
    bench.restart(clean=False)
    assert bench.manager.loaded(bench.name).high_watermark == 10
    assert checkpoint.read_text() == "0\n1\norders 0 10\n"


def test_without_an_entry_the_high_watermark_is_the_log_start(bench, batch):
    """A missing entry of replication-offset-checkpoint counts as 0, clamped to the log."""
    bench.append(batch(5))
    bench.log().advance_log_start(2)
    bench.restart()
    (bench.directory / "replication-offset-checkpoint").write_text("0\n0\n")
    assert bench.manager.loaded(bench.name).high_watermark == 2


def test_high_watermarks_of_logs_that_are_not_named_are_kept(bench, batch):
    """A replica that got no leader yet since the start must not lose its entry."""
    bench.append(batch(5))
    bench.manager.get_or_create(OTHER, "", is_new=True)
    bench.manager.note_high_watermarks({bench.name: 4})
    bench.manager.write_high_watermarks()
    bench.restart(clean=False)
    bench.manager.note_high_watermarks({OTHER: 0})
    bench.manager.write_high_watermarks()
    text = (bench.directory / "replication-offset-checkpoint").read_text()
    assert sorted(text.splitlines()[2:]) == ["orders 0 4", "payments 1 0"]


def test_a_clean_close_leaves_the_mark_and_everything_on_disk(bench, batch):
    bench.append(batch(5, producer_id=4, sequence=0))
    bench.manager.close({bench.name: 5})
    bench.manager = None
    assert (bench.directory / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":-1}'
    assert (bench.directory / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 5\n"
    assert (bench.directory / "replication-offset-checkpoint").read_text() == "0\n1\norders 0 5\n"
    assert bench.files(".snapshot") == ["00000000000000000005.snapshot"]
    bench.open()
    assert not (bench.directory / ".kafka_cleanshutdown").exists(), "a crash from now on must show"


def test_a_deleted_log_is_renamed_at_once_and_removed_later(bench, batch):
    bench.settings["log.segment.delete.delay.ms"] = "1000"
    bench.append(batch(5))
    bench.manager.note_high_watermarks({bench.name: 4})
    bench.manager.write_high_watermarks()
    bench.manager.delete(bench.name)
    assert bench.manager.get(bench.name) is None
    (renamed,) = (path for path in bench.directory.iterdir() if path.is_dir())
    assert renamed.name.startswith("orders-0.")
    assert renamed.name.endswith("-delete")
    assert (bench.directory / "recovery-point-offset-checkpoint").read_text() == "0\n0\n"
    bench.now_ms += 999
    bench.manager.remove_deleted()
    assert renamed.exists()
    bench.now_ms += 1
    bench.manager.remove_deleted()
    assert not renamed.exists()
    assert bench.log().log_end_offset == 0
    assert bench.manager.loaded(bench.name).high_watermark == 0


def test_checkpoints_of_a_deleted_log_are_not_those_of_a_new_one_of_its_name(bench, batch):
    """The process is killed behind the renaming of the log's directory, and again when the name is in use again.

    The new log would begin at the log start offset of the one before: what it holds below would be lost.
    """
    bench.append(batch(5))
    bench.append(batch(5))
    log = bench.log()
    log.advance_log_start(7)
    log.flush()
    bench.manager.write_recovery_points()
    bench.manager.note_high_watermarks({bench.name: 9})
    bench.manager.write_high_watermarks()
    log.log_directory.note_cleaned(bench.name, 5)
    bench.stop(clean=False)
    bench.partition_directory.rename(bench.directory / "orders-0.0123456789abcdef0123456789abcdef-delete")
    bench.append(batch(6))
    log = bench.restart(clean=False)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 6, 0)
    assert log.log_directory.first_dirty_offset(bench.name) is None
    assert bench.manager.loaded(bench.name).high_watermark == 0


def test_a_deleted_log_goes_after_a_restart_too(bench, batch):
    bench.append(batch(5))
    bench.manager.delete(bench.name)
    bench.stop(clean=False)
    bench.open()
    assert bench.manager.logs == {}
    bench.now_ms += 60_000
    bench.manager.remove_deleted()
    assert not [path for path in bench.directory.iterdir() if path.is_dir()]


def test_a_loss_of_power_does_not_bring_back_what_a_start_has_found_deleted(bench, batch, tmp_path):
    """The process before was killed behind the rename of the log's directory, before it was synced.

    The log has no recovery point yet: if it has one, the start's change of that checkpoint syncs the rename, too.
    """
    bench.disk = JournalDisk(bench.directory, tmp_path / "attic")
    bench.append(batch(5))
    bench.stop(clean=False)
    bench.disk.rename(bench.partition_directory, bench.directory / "orders-0.0123456789abcdef0123456789abcdef-delete")
    bench.open()
    assert bench.manager.logs == {}
    bench.stop(clean=False)
    bench.disk.lose_power(AllNames())
    bench.open()
    assert bench.manager.logs == {}


def test_names_of_deleted_logs_fit_a_file_system():
    name = deleted_name(TopicPartition("t" * 249, 12), "0" * 32)
    assert len(name) == 255
    assert name.endswith("-12." + "0" * 32 + "-delete")


def test_deleting_while_a_pool_thread_flushes_is_no_disk_error(bench, batch, monkeypatch):
    """The files vanish under the flush, because they were deleted: that is no failure of the directory."""
    bench.append(batch(5))
    log = bench.log()
    entered, may_go = threading.Event(), threading.Event()
    sync = log._sync

    def slow(segments):
        entered.set()
        may_go.wait(10)
        sync(segments)

    monkeypatch.setattr(log, "_sync", slow)
    flusher = threading.Thread(target=log.flush)
    flusher.start()
    entered.wait(10)
    bench.manager.delete(bench.name)
    may_go.set()
    flusher.join()
    assert bench.manager.offline_directories == []


def test_several_threads_recover_the_same(bench, batch):
    bench.settings["num.recovery.threads.per.data.dir"] = "3"
    manager = bench.open()
    for at in range(6):
        log = manager.get_or_create(TopicPartition("t", at), "", is_new=True)
        for _ in range(at):
            records = batch(2)
            log.append_as_follower(*shifted(records, log.log_end_offset))
    bench.stop(clean=False)
    manager = bench.open()
    assert {name.partition: log.log_end_offset for name, log in manager.logs.items()} == {at: 2 * at for at in range(6)}


def shifted(records, base_offset):
    data = bytearray(records)
    patch(data, 0, base_offset, 0)
    return bytes(data), [read_header(data)]


def test_changed_settings_reach_the_logs(bench, batch):
    bench.append(batch(2))
    bench.settings["log.segment.bytes"] = "100"
    broker, _ = parse_broker_settings(bench.settings)
    bench.manager._topic_values = lambda _topic: parse_topic_settings({}, broker)
    bench.manager.settings_changed("orders")
    bench.append(batch(2))
    assert len(bench.log().segments) == 2


def test_of_several_directories_that_refuse_the_first_is_reported_and_the_rest_is_written(tmp_path):
    directories = [tmp_path / name for name in "abc"]
    manager = opened(*directories)
    checkpoints = [directory / "recovery-point-offset-checkpoint" for directory in directories]
    for broken in checkpoints[:2]:
        broken.unlink()
        broken.mkdir()
    checkpoints[2].unlink()
    with pytest.raises(StorageError) as refusal:
        manager.write_recovery_points()
    assert str(directories[0]) in refusal.value.message
    assert manager.offline_directories == directories[:2]
    assert checkpoints[2].is_file()
    manager.close({})


def test_a_new_topic_does_not_begin_with_the_high_watermark_of_a_deleted_one(bench, batch):
    """The broker is killed before the next checkpoint: what follows the new log's records is not committed yet."""
    bench.append(batch(3))
    bench.manager.note_high_watermarks({bench.name: 3})
    bench.manager.write_high_watermarks()
    bench.manager.delete(bench.name)
    bench.append(batch(3))
    bench.restart(clean=False)
    assert bench.manager.loaded(bench.name).high_watermark == 0
