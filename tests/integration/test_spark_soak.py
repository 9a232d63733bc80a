"""The Spark job under random faults of brokers and kills of its own driver; in the end its output is the committed log.

``make soak-spark`` runs it for an hour, ``make soak-spark SPARK_SOAK_SECONDS=120 SEED=7`` for as long as wanted.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.integration.spark_runs import Job
from tests.integration.test_soak import PARTITIONS, TIDEGAUGE, Soak, producing
from tests.waiting import until

from tidegauge_client.history import read_history
from tidegauge_client.sync import SyncAdmin
from tidegauge_lab.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(0)]

LIMIT = ("--max-offsets-per-trigger", "20000")
FAULTS_PER_DRIVER = 6
START_S = 300
Log = dict[tuple[int, int], bytes]


def committed_log(cluster: LocalCluster, topic: str) -> Log:
    """All records below the high watermarks, as a consumer reads them."""
    command = [TIDEGAUGE, "consume", topic, "--dir", str(cluster.directory), "--from-beginning"]
    command += ["--timeout-ms", "15000", "--format", r"%p %o %v\n"]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()
    places = (line.split(b" ", 2) for line in lines)
    return {(int(partition), int(offset)): value for partition, offset, value in places}


def output_of(job: Job) -> Log:
    """What lies in the output; a record that lies there twice fails."""
    table = pq.read_table(job.output, columns=["partition", "offset", "value"])
    columns = (table.column(name).to_pylist() for name in table.schema.names)
    rows = list(zip(*columns, strict=True))
    found = {(partition, offset): value for partition, offset, value in rows}
    assert len(found) == len(rows), "a record stands there twice"
    return found


def run_under_faults(chaos: Soak, job: Job, seconds: float) -> None:
    """Faults one after the other; now and then the driver dies and is started again over its checkpoint."""
    end = time.monotonic() + seconds
    job.start(*LIMIT)
    until(lambda: bool(job.progress()), START_S, "the first batch")
    while len(chaos.done) < 2 or time.monotonic() < end:
        assert job.process is not None
        assert job.process.poll() is None, (chaos.done, job.log.read_text(encoding="utf-8")[-3_000:])
        chaos.one_fault()
        if len(chaos.done) % FAULTS_PER_DRIVER == 0:
            chaos.done.append("kill of the driver")
            job.kill()
            job.start(*LIMIT)
            seen = len(job.progress())
            until(lambda: len(job.progress()) > seen, START_S, "a batch of the new driver")  # noqa: B023  (used at once)


def test_the_output_is_the_committed_log_whatever_happens(
    make_cluster: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    """Every acknowledged record once, where it was acknowledged; nothing that is not in the log now."""
    seconds = float(os.environ.get("SPARK_SOAK_SECONDS", "120"))
    seed = int(os.environ.get("SOAK_SEED", "3"))
    cluster, topic, history = make_cluster(brokers=3), f"spark-soak-{seed}", tmp_path / "history"
    with SyncAdmin(cluster.bootstrap_servers) as admin:
        admin.create_topic(
            topic, partitions=PARTITIONS, replication_factor=3, configs={"min.insync.replicas": "2"}, timeout_ms=60_000
        )
        admin.wait_for_topic(topic)
    chaos, job = Soak(cluster, topic, seed), Job(tmp_path, cluster, topic)
    try:
        with producing(cluster, topic, history):
            run_under_faults(chaos, job, seconds)
        job.kill()
        job.start("--available-now", *LIMIT)
        assert job.process is not None
        code = job.process.wait(1_200)
        assert code == 0, (chaos.done, job.log.read_text(encoding="utf-8")[-3_000:])
    finally:
        job.clean_up()
    found, log = output_of(job), committed_log(cluster, topic)
    print(f"seed {seed}, {seconds:g} s, {len(found)} records, {len(chaos.done)} faults: {'; '.join(chaos.done)}")
    assert found == log, (seed, chaos.done)
    acknowledged = {
        (record.partition, record.offset): record.value
        for record in read_history([history], topic).records
        if record.outcome == "ok"
    }
    assert acknowledged, "the producers got something through"
    assert {place: found.get(place) for place in acknowledged} == acknowledged, (seed, chaos.done)
