"""Chaos soak (row B6): faults of every kind from a seed, one after the other, under producers, consumers and a Spark
job; then all heals, the books balance, and brokers and ZooKeeper hold no more than before.

``make soak SECONDS=3600 SEED=7`` runs it for as long as wanted; the same seed draws the same faults. ``SOAK_SPARK=0``
leaves the Spark job out.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.integration.chaos import LIMIT_S, Chaos
from tests.integration.chaos_leaks import Holdings, holdings, wait_until_back
from tests.integration.spark_runs import Job
from tests.waiting import until

from tidegauge.partition import TopicPartition
from tidegauge_client.admin import LATEST
from tidegauge_client.history import read_history
from tidegauge_client.sync import SyncAdmin
from tidegauge_lab.cli.verify import verify
from tidegauge_lab.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

TIDEGAUGE = str(Path(sys.executable).with_name("tidegauge"))
PARTITIONS = 3
RATE = 100
JOB_START_S = 300
JOB_END_S = 1_200
JOB_LIMIT = ("--max-offsets-per-trigger", "20000")
Log = dict[tuple[int, int], bytes]


class Clients:
    """Two producers with a history, two consumers, and a Spark job if wanted; each may be killed, another one follows.

    Attributes:
        reads: what the consumers printed, one file for each that ever was.
    """

    def __init__(self, cluster: LocalCluster, topic: str, folder: Path, *, with_job: bool) -> None:
        self.history = folder / "history"
        self.reads: list[Path] = []
        self.job = Job(folder, cluster, topic) if with_job else None
        self._cluster = cluster
        self._topic = topic
        self._folder = folder
        self._producers: list[subprocess.Popen[bytes]] = []
        self._consumers: list[subprocess.Popen[bytes]] = []
        self._turn = 0

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """All at work; at the end the producers die, and consumers and job have read everything."""
        try:
            for _ in range(2):
                self._produce()
                self._consume()
            until(lambda: self.acknowledged() > 50, LIMIT_S)
            if self.job is not None:
                self.start_job()
            yield
            self._end(self._producers)
            self._wait_for_consumers()
            if self.job is not None:
                self._end_job(self.job)
        finally:
            self._end(self._producers + self._consumers)
            if self.job is not None:
                self.job.clean_up()

    def acknowledged(self) -> int:
        return self.history.read_bytes().count(b'"ok"') if self.history.exists() else 0

    def kill_one(self) -> None:
        """Producer, consumer and driver take turns."""
        self._turn += 1
        if self._turn % 3 == 0 and self.job is not None:
            self.job.kill()
            self.start_job()
        elif self._turn % 2:
            self._end([self._producers.pop(0)])
            self._produce()
        else:
            self._end([self._consumers.pop(0)])
            self._consume()

    def start_job(self) -> None:
        """Returns when it has written a batch."""
        assert self.job is not None
        seen, job = len(self.job.progress()), self.job
        job.start(*JOB_LIMIT)
        until(lambda: len(job.progress()) > seen, JOB_START_S, "a batch of the job")

    def check_all_live(self) -> None:
        """A client may be slow, or say that something failed; none may end."""
        assert [one.poll() for one in self._producers + self._consumers] == [None] * 4
        if self.job is not None and self.job.process is not None:
            assert self.job.process.poll() is None, self.job.log.read_text(encoding="utf-8")[-3_000:]

    def check_reads(self) -> None:
        """Each consumer got each offset once, in order."""
        for path in self.reads:
            at: dict[int, int] = {}
            for line in path.read_bytes().splitlines(keepends=True):
                if line.endswith(b"\n"):  # not the one in which it was killed
                    record = json.loads(line)
                    partition, offset = record["partition"], record["offset"]
                    assert offset == at.get(partition, -1) + 1, (path, partition, offset, at)
                    at[partition] = offset

    def _start(self, *arguments: str, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        command = [TIDEGAUGE, *arguments, "--dir", str(self._cluster.directory)]
        return subprocess.Popen(command, stdout=stdout, stderr=subprocess.DEVNULL)

    def _produce(self) -> None:
        what = ["--count", "100000000", "--rate", str(RATE), "--history", str(self.history)]
        self._producers.append(self._start("produce", self._topic, *what))

    def _consume(self) -> None:
        path = self._folder / f"reads-{len(self.reads)}"
        self.reads.append(path)
        with path.open("wb") as file:
            self._consumers.append(
                self._start("consume", self._topic, "--from-beginning", "-o", "json", stdout=file.fileno())
            )

    def _end(self, processes: list[subprocess.Popen[bytes]]) -> None:
        for process in processes:
            process.kill()
            process.wait()

    def _wait_for_consumers(self) -> None:
        partitions = [TopicPartition(self._topic, number) for number in range(PARTITIONS)]

        def committed() -> int:
            with SyncAdmin(self._cluster.bootstrap_servers) as admin:
                return sum(found.offset for found in admin.list_offsets(dict.fromkeys(partitions, LATEST)).values())

        for path in self.reads[-2:]:
            until(lambda: path.read_bytes().count(b"\n") == committed(), LIMIT_S, "consumers read all")  # noqa: B023  (used at once)

    def _end_job(self, job: Job) -> None:
        job.kill()
        job.start("--available-now", *JOB_LIMIT)
        assert job.process is not None
        code = job.process.wait(JOB_END_S)
        assert code == 0, job.log.read_text(encoding="utf-8")[-3_000:]


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


def check_job(job: Job, clients: Clients, cluster: LocalCluster, topic: str) -> None:
    """Every acknowledged record once, where it was acknowledged; nothing that is not in the log now."""
    found = output_of(job)
    assert found == committed_log(cluster, topic)
    acknowledged = {
        (record.partition, record.offset): record.value
        for record in read_history([clients.history], topic).records
        if record.outcome == "ok"
    }
    assert acknowledged, "the producers got something through"
    assert {place: found.get(place) for place in acknowledged} == acknowledged


def warmed_up(cluster: LocalCluster, topic: str) -> Holdings:
    """What young brokers hold once a producer and a consumer have come and gone."""
    where = ["--dir", str(cluster.directory)]
    subprocess.run([TIDEGAUGE, "produce", topic, "--count", "2000", *where], check=True, stderr=subprocess.DEVNULL)
    command = [TIDEGAUGE, "consume", topic, "--from-beginning", "--max-messages", "2000", *where]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return holdings(cluster)


def soak(cluster: LocalCluster, folder: Path, seconds: float, seed: int, *, with_job: bool) -> None:
    """Let faults happen under load for so long, heal, and hold the accountant's verdict against it."""
    topic, warm = f"soak-{seed}", f"warm-{seed}"
    with SyncAdmin(cluster.bootstrap_servers) as admin:
        for name in (warm, topic):
            configs = {"min.insync.replicas": "2"}
            admin.create_topic(name, partitions=PARTITIONS, replication_factor=3, configs=configs, timeout_ms=60_000)
            admin.wait_for_topic(name)
    before = warmed_up(cluster, warm)
    clients = Clients(cluster, topic, folder, with_job=with_job)
    chaos = Chaos(cluster, [topic], seed, client_dies=clients.kill_one)
    end = time.monotonic() + seconds
    with clients.at_work():
        while not chaos.done or time.monotonic() < end:
            chaos.one_fault()
            clients.check_all_live()
    print(f"seed {seed}, {seconds:g} s, {len(chaos.done)} faults: {'; '.join(chaos.done)}")
    options = ["--history", str(clients.history), "--dir", str(cluster.directory), "-o", "json"]
    options += [word for path in clients.reads for word in ("--reads", str(path))]
    told = CliRunner().invoke(verify, [topic, *options], catch_exceptions=False)
    document = json.loads(told.stdout)
    wrong = {kind: count for kind, count in document["counts"].items() if count}
    assert (told.exit_code, wrong) == (0, {}), (seed, chaos.done, document["findings"])
    account = document["acks"]["all"]
    assert account["acknowledged"] == account["kept"] > 0, (seed, chaos.done)
    clients.check_reads()
    if clients.job is not None:
        check_job(clients.job, clients, cluster, topic)
    print(f"{account['acknowledged']} records acknowledged and kept, {document['replicas']} replicas equal")
    wait_until_back(cluster, before)
    print(f"brokers held at most {before.most} before, {holdings(cluster).most} after")


@pytest.mark.long
def test_after_a_minute_of_random_faults_the_books_balance(
    make_cluster: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    """Without the Spark job, whose start alone takes as long."""
    seed = int(os.environ.get("SOAK_SEED", "1"))
    soak(make_cluster(brokers=3, zookeeper=None), tmp_path, 50, seed, with_job=False)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(0)
def test_after_as_long_as_wanted_the_books_balance(make_cluster: Callable[..., LocalCluster], tmp_path: Path) -> None:
    """Ten minutes, or what ``make soak`` was given."""
    seconds, seed = float(os.environ.get("SOAK_SECONDS", "600")), int(os.environ.get("SOAK_SEED", "2"))
    with_job = os.environ.get("SOAK_SPARK", "1") != "0"
    soak(make_cluster(brokers=3, zookeeper=None), tmp_path, seconds, seed, with_job=with_job)
