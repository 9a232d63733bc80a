"""Kafka 4.3.1's own DumpLogSegments reads the metadata log and snapshots that are written here, and prints the same.

Needs Maven, or the jars that it brought before; if they can't be had, the test says so and is skipped.
"""

from __future__ import annotations

import importlib
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.unit.kafka.random_messages import random_struct

from tidegauge.java import java_program
from tidegauge.kafka.kraft.control_messages.leader_change_message import LeaderChangeMessage, Voter
from tidegauge.kafka.kraft.control_messages.voters_record import VotersRecord
from tidegauge.kafka.kraft.record_types import RECORD_TYPES, encode_record, record_class
from tidegauge_broker.log.dump_verb import dump_log
from tidegauge_broker.metadata_log.batches import control_batch, data_batch
from tidegauge_broker.metadata_log.snapshot_names import BOOTSTRAP_NAME, snapshot_name
from tidegauge_broker.metadata_log.snapshots import SnapshotWriter, encode_bootstrap

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1200)]

BENCH = Path(__file__).parents[2] / "bench"
KAFKA = "4.3.1"
SAMPLES = 5
TIME_MS = 1_700_000_000_000


@pytest.fixture
def kafka_tools(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory with the jars of Kafka's tools."""
    monkeypatch.syspath_prepend(str(BENCH))
    maven: Any = importlib.import_module("maven")
    names = ("kafka_2.13", "kafka-tools")
    try:
        return maven.resolve(f"kafka-tools-{KAFKA}", [maven.Artifact("org.apache.kafka", one, KAFKA) for one in names])
    except maven.Unavailable as reason:
        pytest.skip(str(reason))


def every_record() -> Iterator[bytes]:
    """Random records of each type in each version."""
    for record in RECORD_TYPES.values():
        for version in range(record.last + 1):
            for sample in range(SAMPLES):
                rng = random.Random(f"{record.message} {version} {sample}")
                yield encode_record(random_struct(record_class(record.key), version, rng), version)


def test_kafka_reads_every_metadata_record_as_we_do(kafka_tools: Path, tmp_path: Path):
    """A segment, a snapshot and bootstrap.checkpoint, with random records of each type and version."""
    values = list(every_record())
    voters = random_struct(VotersRecord, 0, random.Random(1))
    voters.version = 0
    change = LeaderChangeMessage(leader_id=3000, voters=[Voter(3000), Voter(3001)], granting_voters=[Voter(3000)])
    writer = SnapshotWriter(epoch=7)
    whole = [writer.begin(TIME_MS, 1, voters, TIME_MS), *writer.append(values, TIME_MS), writer.finish(TIME_MS)]
    files = {
        f"{0:020d}.log": control_batch([change], 0, 7, TIME_MS) + data_batch(values, 1, 7, TIME_MS),
        snapshot_name(len(values), 7): b"".join(whole),
        BOOTSTRAP_NAME: encode_bootstrap(values, TIME_MS, TIME_MS, TIME_MS),
    }
    for name, data in files.items():
        path = tmp_path / name
        path.write_bytes(data)
        command = [java_program(), "-cp", f"{kafka_tools}/*", "org.apache.kafka.tools.DumpLogSegments"]
        arguments = ["--cluster-metadata-decoder", "--files", str(path)]
        kafkas = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True).stdout
        ours = CliRunner().invoke(dump_log, [str(path), "--cluster-metadata-decoder"]).stdout
        assert ours.splitlines() == kafkas.splitlines()
        assert ours.count("payload: {") == len(values)
        assert "Error at" not in ours
