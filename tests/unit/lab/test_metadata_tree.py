"""``metadata-tree`` on files: Kafka's own log and snapshot, a log that ends within a batch, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.unit.metadata_log.kafka_files import kafka_files

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.cli.metadata_tree import METADATA_LOG, metadata_tree, read_directory
from tidegauge_lab.cli.zk_tree import zk_tree
from tidegauge_lab.local import layout
from tidegauge_lab.local.plan import first_plan
from tidegauge_lab.local.wanted import Wanted

SNAPSHOT = "00000000000000002621-0000000004.checkpoint"


def a_log(at: Path, *files: tuple[str, bytes]) -> Path:
    """Return a log directory whose metadata log has these files."""
    log = at / METADATA_LOG
    log.mkdir(parents=True)
    for name, data in files:
        (log / name).write_bytes(data)
    return at


def of_kafka(end: str) -> bytes:
    """Return the content of Kafka's file whose name ends so."""
    return next(file.data for name, file in kafka_files().items() if name.endswith(end))


def test_a_snapshot_that_kafka_wrote_is_read(tmp_path: Path) -> None:
    path = tmp_path / SNAPSHOT
    path.write_bytes(of_kafka(SNAPSHOT))
    done = CliRunner().invoke(metadata_tree, ["features", "--snapshot", str(path), "-o", "json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["source"], found["offset"]) == (str(path), 2620)
    assert {"path": "/image/features/metadataVersion", "value": "Optional[4.3-IV0]"} in found["nodes"]
    leaf = CliRunner().invoke(metadata_tree, ["/image/features/metadataVersion", "--snapshot", str(path)])
    assert leaf.stdout == "Optional[4.3-IV0]\n"


def test_a_log_is_read_and_its_incomplete_end_is_left_out(tmp_path: Path) -> None:
    """A process may be writing the last batch."""
    data = of_kafka("main/00000000000000000000.log")
    whole = read_directory(a_log(tmp_path / "whole", ("00000000000000000000.log", data)))
    assert whole.read.remarks == []
    torn = read_directory(a_log(tmp_path / "torn", ("00000000000000000000.log", data[:-7])) / METADATA_LOG)
    assert torn.read.image.provenance.offset < whole.read.image.provenance.offset
    [remark] = torn.read.remarks
    assert f"what follows offset {torn.read.image.provenance.offset} is left out" in remark
    part = read_directory(tmp_path / "whole", until=12)
    assert part.read.image.provenance.offset == 11, "what is not committed is left out"


def test_damage_before_the_end_and_missing_records_are_errors_that_name_the_file(tmp_path: Path) -> None:
    data = of_kafka("main/00000000000000000000.log")
    first, second = ("00000000000000000000.log", data[:-7]), ("00000000000000000200.log", data)
    with pytest.raises(TidegaugeError, match=r"00000000000000000000\.log: ") as damaged:
        read_directory(a_log(tmp_path / "damaged", first, second))
    assert damaged.value.code is ErrorCode.CORRUPT_MESSAGE
    snapshot = of_kafka(SNAPSHOT)
    spoilt = a_log(tmp_path / "snapshot", (SNAPSHOT, snapshot[:-3]), ("00000000000000000000.log", data))
    with pytest.raises(TidegaugeError, match=rf"{SNAPSHOT}: "):
        read_directory(spoilt)


def test_a_snapshot_comes_before_the_log(tmp_path: Path) -> None:
    """Retired and unfinished snapshots, and the first voters', are passed over."""
    snapshot = of_kafka(SNAPSHOT)
    names = [SNAPSHOT, f"{SNAPSHOT}.deleted", f"{SNAPSHOT}.part", "00000000000000000000-0000000000.checkpoint"]
    files = [(name, snapshot if name == SNAPSHOT else b"") for name in names]
    assert read_directory(a_log(tmp_path, *files)).read.image.provenance.offset == 2620


def test_what_is_refused_says_why(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    runner = CliRunner()
    none = runner.invoke(metadata_tree, ["--log-dir", str(tmp_path / "log")])
    assert "has no metadata log: give a log directory of a node in KRaft mode" in none.output
    path = tmp_path / SNAPSHOT
    path.write_bytes(of_kafka(SNAPSHOT))
    wrong = runner.invoke(metadata_tree, ["/image/topics/byNam", "--snapshot", str(path)])
    assert "there is no /image/topics/byNam: /image/topics has byName, byId" in wrong.output
    deeper = runner.invoke(metadata_tree, ["features/metadataVersion/x", "--snapshot", str(path)])
    assert "/image/features/metadataVersion is a leaf" in deeper.output
    both = runner.invoke(metadata_tree, ["--log-dir", str(tmp_path), "--snapshot", str(path)])
    assert (both.exit_code, none.exit_code) == (2, 1)


def test_each_mode_names_the_others_tree(tmp_path: Path) -> None:
    in_zookeeper, in_kraft = tmp_path / "z", tmp_path / "k"
    layout.write(in_zookeeper, first_plan(in_zookeeper, Wanted(mode="zookeeper"), free=lambda _: True).file)
    layout.write(in_kraft, first_plan(in_kraft, Wanted(mode="kraft"), free=lambda _: True).file)
    refused = CliRunner().invoke(metadata_tree, ["--dir", str(in_zookeeper)])
    assert "is in ZooKeeper mode, and has no metadata log: its metadata are znodes" in refused.output
    assert f"zk-tree --dir {in_zookeeper}" in refused.output
    other = CliRunner().invoke(zk_tree, ["--dir", str(in_kraft)])
    assert f"metadata-tree --dir {in_kraft}" in other.output
    empty = CliRunner().invoke(metadata_tree, ["--dir", str(in_kraft)])
    assert "no node of the cluster" in empty.output
    assert "has a metadata log yet" in empty.output
