"""``dump-log --cluster-metadata-decoder`` prints what kafka-dump-log of Kafka 4.3.1 printed of the same files."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.unit.metadata_log.kafka_files import kafka_files

from tidegauge.kafka.kraft.control_messages.kraft_version_record import KRaftVersionRecord
from tidegauge.record_batch import HEADER_BYTES, make_batch, read_header
from tidegauge_broker.log.dump_verb import dump_log
from tidegauge_broker.metadata_log.batches import control_batch, data_batch

DUMPED = [name for name, file in kafka_files().items() if file.dump is not None]


def run(path: Path, *options: str):
    return CliRunner().invoke(dump_log, [str(path), *options])


@pytest.fixture(params=DUMPED)
def kafka_file(request, tmp_path: Path) -> tuple[Path, str]:
    file = kafka_files()[request.param]
    path = tmp_path / Path(request.param).name
    path.write_bytes(file.data)
    return path, file.dump or ""


def test_the_dump_is_kafkas_to_the_byte(kafka_file: tuple[Path, str]):
    path, expected = kafka_file
    result = run(path, "--cluster-metadata-decoder")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"Dumping {path}\n{expected}"


def test_without_the_decoder_control_records_are_shown_as_json(tmp_path: Path):
    """DumpLogSegments decodes control records whatever its options are."""
    path = tmp_path / "00000000000000002621-0000000004.checkpoint"
    path.write_bytes(kafka_files()[f"main/{path.name}"].data)
    lines = run(path, "--deep-iteration").stdout.splitlines()
    assert lines[3].endswith('SnapshotHeader {"version":0,"lastContainedLogTimestamp":1795933304594}')
    assert lines[7].endswith("keySize: -1 valueSize: 23 sequence: -1 headerKeys: []")
    lines = run(path, "--cluster-metadata-decoder", "--skip-record-metadata").stdout.splitlines()
    assert lines[3] == ""
    assert lines[7].startswith('| payload: {"type":"FEATURE_LEVEL_RECORD"')


def test_records_are_objects_in_json(tmp_path: Path):
    path = tmp_path / "bootstrap.checkpoint"
    path.write_bytes(kafka_files()["4.3/bootstrap.checkpoint"].data)
    rows = [json.loads(line) for line in run(path, "--cluster-metadata-decoder", "-o", "json").stdout.splitlines()]
    assert (rows[0]["kind"], rows[0]["bootstrap"]) == ("metadataSnapshot", True)
    assert (rows[2]["controlType"], rows[2]["data"]["version"]) == ("SnapshotHeader", 0)
    assert rows[4]["payload"] == {
        "type": "FEATURE_LEVEL_RECORD",
        "version": 0,
        "data": {"name": "metadata.version", "featureLevel": 30},
    }


def test_a_record_that_cannot_be_read_is_skipped_by_name(tmp_path: Path):
    """ClusterMetadataLogMessageParser prints the error in the record's place and goes on."""
    path = tmp_path / "00000000000000000000.log"
    good = data_batch([b"\x01\x14\x00\x00"], 1, 1, 5)
    path.write_bytes(data_batch([b"\x01\x63\x00"], 0, 1, 5) + good)
    lines = run(path, "--cluster-metadata-decoder").stdout.splitlines()
    assert lines[3].endswith("payload: Error at 0, skipping. Unknown metadata id 99")
    assert lines[5].endswith('payload: {"type":"NO_OP_RECORD","version":0,"data":{}}')


def test_unknown_control_records_are_named_by_number(tmp_path: Path):
    """ControlRecordType.UNKNOWN: what a later release writes does not stop the reader."""
    path = tmp_path / "00000000000000000000.log"
    known = control_batch([KRaftVersionRecord(kraft_version=1)], 0, 1, 5)
    unknown = bytes(known[HEADER_BYTES:]).replace(b"\0\0\0\5", b"\0\0\0\x63", 1)
    path.write_bytes(make_batch(read_header(known), unknown))
    lines = run(path, "--deep-iteration").stdout.splitlines()
    assert lines[3].endswith("headerKeys: [] controlType: UNKNOWN(99)")


def test_a_checkpoint_of_another_name_is_refused(tmp_path: Path):
    path = tmp_path / "other.checkpoint"
    path.write_bytes(kafka_files()["4.3/bootstrap.checkpoint"].data)
    result = run(path, "--cluster-metadata-decoder")
    assert result.exit_code == 1
    assert "is not named by an end offset and an epoch" in result.stderr
