"""Chaos soak (docs/chaos.md): faults of every kind from a seed, one after the other, under producers, consumers, Kafka
clients in transactions and groups, and a Spark job; then all heals, the books balance, and brokers and ZooKeeper hold
no more than before.

``make soak SECONDS=3600 SEED=7`` runs it for as long as wanted; the same seed draws the same faults. ``SOAK_SPARK=0``
leaves the Spark job out.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

from click.testing import CliRunner
from tests.clients.programs import Unavailable
from tests.integration.chaos import BROKERS, DAMAGE, LIMIT_S, Chaos, with_two_directories
from tests.integration.chaos_coordinators import ALL_FAULTS, LATE_COMMITS
from tests.integration.chaos_kafka import LIBRDKAFKA, SETTINGS, WORKLOADS, KafkaLoad, Workload, prepare
from tests.integration.chaos_leaks import Holdings, holdings, wait_until_back
from tests.integration.spark_runs import Job
from tests.waiting import until

from tidegauge.partition import TopicPartition
from tidegauge_client.admin import LATEST
from tidegauge_client.history import read_history
from tidegauge_client.sync import SyncAdmin
from tidegauge_lab.cli.verify import verify
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_spark.job_session import SLOW_WORKER

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

TIDEGAUGE = str(Path(sys.executable).with_name("tidegauge"))
PARTITIONS = 3
RATE = 50
EXPIRING = ("--request-timeout-ms", "1500", "--delivery-timeout-ms", "3000")
"""For every second producer: its records fail while a fault lasts, and both timeouts may end at the same moment."""
JOB_END_S = 1_200
JOB_LIMIT = ("--max-offsets-per-trigger", "20000")
SHORT_SECONDS = 15.0
NO_BROKER = "BROKER_NOT_AVAILABLE (8): no broker responds"
Log = dict[tuple[int, int], bytes]


@dataclass(slots=True)
class Client:
    """A verb at work.

    Attributes:
        process: the verb.
        said: what it wrote to stderr.
        reads: what it printed, if it consumes.
    """

    process: subprocess.Popen[bytes]
    said: Path
    reads: Path | None = None


class Clients:
    """Two producers with a history, one of them with short timeouts, two consumers, and a Spark job if wanted.

    Each may be killed, and another one follows.

    Attributes:
        reads: what the consumers printed, one file for each that ever was.
        deaths: how many of each kind were killed.
    """

    def __init__(self, cluster: LocalCluster, topic: str, directory: Path, *, with_job: bool) -> None:
        self.history = directory / "history"
        self.reads: list[Path] = []
        self.job = Job(directory, cluster, topic) if with_job else None
        self._cluster = cluster
        self._topic = topic
        self._directory = directory
        self._producers: list[Client] = []
        self._consumers: list[Client] = []
        self._count = itertools.count()
        self._turn = 0
        self._timeouts: Iterator[tuple[str, ...]] = itertools.cycle([(), EXPIRING])
        self.deaths: Counter[str] = Counter()

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """All at work; at the end the producers die, and consumers and job have read everything."""
        try:
            for _ in range(2):
                self._produce()
                self._consume()
            until(lambda: self.acknowledged() > 50, LIMIT_S)
            if self.job is not None:
                self.job.start(*JOB_LIMIT)
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
        """A producer or a consumer, by turns, and each time the driver; the next one starts while faults go on."""
        self._turn += 1
        if self._turn % 2:
            self._end([self._producers.pop(0)])
            self._produce()
        else:
            self._end([self._consumers.pop(0)])
            self._consume()
        self.deaths["producer" if self._turn % 2 else "consumer"] += 1
        if self.job is not None:
            self._kill_driver(self.job)
            self.job.start(*JOB_LIMIT)

    def _kill_driver(self, job: Job) -> None:
        job.kill()
        self.deaths["driver"] += 1

    def check_all_live(self) -> None:
        """A client may be slow, or say that something failed; none may end.

        Excepted are a job that ``_saw_no_worker``, and a client that found no broker when it began, as while all are
        paused: another one begins in its place.
        """
        for clients, begin in ((self._producers, self._produce), (self._consumers, self._consume)):
            for one in [one for one in clients if one.process.poll() is not None]:
                self._found_no_broker(one)
                clients.remove(one)
                begin()
        if self.job is not None and self.job.process is not None and self.job.process.poll() is not None:
            self._saw_no_worker(self.job)
            self.job.start(*JOB_LIMIT)

    def _saw_no_worker(self, job: Job) -> None:
        """A job may end where Spark, six times, did not see a Python worker within ten seconds of its start."""
        last = job.log.read_text(encoding="utf-8")[-3_000:]
        assert SLOW_WORKER in last, last
        self.deaths["job that saw no worker"] += 1

    def _found_no_broker(self, client: Client) -> None:
        """A client that knows no broker yet gives up when each has been asked twice (``Cluster``, rule 1)."""
        lines = client.said.read_text(encoding="utf-8").splitlines()
        assert [line.startswith(NO_BROKER) for line in lines] == [True], lines
        self.deaths["client that found no broker"] += 1

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

    def _start(self, *arguments: str, reads: Path | None = None) -> Client:
        command = [TIDEGAUGE, *arguments, "--dir", str(self._cluster.directory)]
        said = self._directory / f"client-{next(self._count)}.err"
        with said.open("wb") as err, contextlib.ExitStack() as stack:
            out = subprocess.DEVNULL if reads is None else stack.enter_context(reads.open("wb"))
            return Client(subprocess.Popen(command, stdout=out, stderr=err), said, reads)

    def _produce(self) -> None:
        what = ["--count", "100000000", "--rate", str(RATE), "--history", str(self.history), *next(self._timeouts)]
        self._producers.append(self._start("produce", self._topic, *what))

    def _consume(self) -> None:
        reads = self._directory / f"reads-{len(self.reads)}"
        self.reads.append(reads)
        self._consumers.append(self._start("consume", self._topic, "--from-beginning", "-o", "json", reads=reads))

    def _end(self, clients: list[Client]) -> None:
        for one in clients:
            one.process.kill()
            one.process.wait()

    def _wait_for_consumers(self) -> None:
        partitions = [TopicPartition(self._topic, number) for number in range(PARTITIONS)]

        def committed() -> int:
            with SyncAdmin(self._cluster.bootstrap_servers) as admin:
                return sum(found.offset for found in admin.list_offsets(dict.fromkeys(partitions, LATEST)).values())

        for path in [one.reads for one in self._consumers if one.reads is not None]:
            until(lambda: path.read_bytes().count(b"\n") == committed(), LIMIT_S, "consumers read all")  # noqa: B023  (used at once)

    def _end_job(self, job: Job) -> None:
        self._kill_driver(job)
        job.start("--available-now", *JOB_LIMIT)
        assert job.process is not None
        while job.process.wait(JOB_END_S) != 0:
            self._saw_no_worker(job)
            job.start("--available-now", *JOB_LIMIT)


def committed_log(cluster: LocalCluster, topic: str) -> Log:
    """All records below the high watermarks, as a consumer reads them."""
    command = [TIDEGAUGE, "consume", topic, "--dir", str(cluster.directory), "--from-beginning"]
    command += ["--timeout-ms", "15000", "--format", r"%p %o %v\n"]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()
    places = (line.split(b" ", 2) for line in lines)
    return {(int(partition), int(offset)): value for partition, offset, value in places}


def output_of(job: Job) -> Log:
    """Return the records of the output; fail if one is there twice."""
    table = pq.read_table(job.output, columns=["partition", "offset", "value"])
    columns = (table.column(name).to_pylist() for name in table.schema.names)
    rows = list(zip(*columns, strict=True))
    found = {(partition, offset): value for partition, offset, value in rows}
    assert len(found) == len(rows), "a record stands there twice"
    return found


def differences(
    one: Mapping[tuple[int, int], bytes | None], other: Mapping[tuple[int, int], bytes | None]
) -> list[tuple[int, int]]:
    """Places at which they differ, the first ones of many."""
    return sorted(place for place in one.keys() | other.keys() if one.get(place) != other.get(place))[:20]


def check_job(job: Job, clients: Clients, cluster: LocalCluster, topic: str) -> None:
    """Check that the output has every acknowledged record once, at its offset, and nothing that the log lacks."""
    found = output_of(job)
    assert not differences(found, committed_log(cluster, topic)), "output and log differ there"
    acknowledged = {
        (record.partition, record.offset): record.value
        for record in read_history([clients.history], topic).records
        if record.outcome == "ok"
    }
    assert acknowledged, "the producers got something through"
    assert not differences(acknowledged, {place: found[place] for place in acknowledged if place in found})


def check_logs(cluster: LocalCluster) -> None:
    """Check that logs have no traceback: a broker reports any failure in a sentence."""
    for path in sorted(cluster.logs.glob("broker-*.log")):
        text = path.read_text(encoding="utf-8", errors="replace")
        at = text.find("Traceback (most recent call last)")
        assert at < 0, f"{path.name}: {text[max(0, at - 500) : at + 4_000]}"


def had(workloads: Mapping[str, Workload]) -> Mapping[str, Workload]:
    """Return the workloads whose clients can be had here; the others are named."""
    found: dict[str, Workload] = {}
    for kind, workload in workloads.items():
        try:
            prepare({kind: workload})
            found[kind] = workload
        except Unavailable as problem:
            print(f"without {kind}: {problem}")
    return found


def warmed_up(cluster: LocalCluster, topic: str) -> Holdings:
    """Return young brokers' holdings after a producer and a consumer."""
    where = ["--dir", str(cluster.directory)]
    words = ["produce", topic, "--count", "2000", "--transactional-id", topic]
    subprocess.run([TIDEGAUGE, *words, *where], check=True, stderr=subprocess.DEVNULL)
    words = ["consume", topic, "--from-beginning", "--max-messages", "2000", "--group", topic]
    subprocess.run([TIDEGAUGE, *words, *where], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return holdings(cluster)


def check_books(cluster: LocalCluster, topic: str, clients: Clients, chaos: Chaos) -> None:
    """Check the accountant's verdict on records written and read over gRPC."""
    options = ["--history", str(clients.history), "--dir", str(cluster.directory), "-o", "json"]
    options += [word for path in clients.reads for word in ("--reads", str(path))]
    reported = CliRunner().invoke(verify, [topic, *options], catch_exceptions=False)
    document = json.loads(reported.stdout)
    wrong = {kind: count for kind, count in document["counts"].items() if count}
    assert (reported.exit_code, wrong) == (0, {}), (chaos.done, document["findings"])
    account = document["acks"]["all"]
    assert account["acknowledged"] == account["kept"] > 0, chaos.done
    print(f"{account['acknowledged']} records acknowledged and kept, {document['replicas']} replicas equal")
    print("not checked:", "; ".join(document["not_checked"]) or "nothing")


def check_kafka_clients(load: KafkaLoad, chaos: Chaos) -> None:
    """The accountant's verdict on the histories of Kafka clients; each copy has each record once."""
    late_commits = chaos.done.count(LATE_COMMITS) * len(BROKERS)
    wrong = {kind: load.wrong(kind, late_commits) for kind in load.kinds}
    assert not any(wrong.values()), (wrong, chaos.done)
    print(f"Kafka clients: {load.records()} records copied in transactions {load.transactions()}")
    print(f"killed Kafka clients: {load.deaths}, paused ones: {load.pauses}")


def soak(
    cluster: LocalCluster,
    directory: Path,
    seconds: float,
    seed: int,
    *,
    with_job: bool,
    workloads: Mapping[str, Workload],
) -> None:
    """Let faults happen under load for so long, heal, and hold the accountant's verdict against it."""
    topic, warm = f"soak-{seed}", f"warm-{seed}"
    cluster.up(LIMIT_S)
    with SyncAdmin(cluster.bootstrap_servers) as admin:
        for name in (warm, topic):
            configs = {"min.insync.replicas": "2"}
            admin.create_topic(name, partitions=PARTITIONS, replication_factor=3, configs=configs, timeout_ms=60_000)
            admin.wait_for_topic(name)
    load = KafkaLoad(cluster, directory, f"soak-{seed}", workloads)
    before = warmed_up(cluster, warm)
    clients = Clients(cluster, topic, directory, with_job=with_job)

    def kill_one() -> None:
        clients.kill_one()
        load.kill_one()

    chaos = Chaos(
        cluster,
        [topic, *load.topics],
        seed,
        kill_one,
        without=[DAMAGE],  # `consume` and Kafka clients end when they meet that
        faults=ALL_FAULTS,
        coordinated=load.coordinated,
        client_pauses=load.pause_one,
    )
    with clients.at_work(), load.at_work():
        with load.writing():
            end = time.monotonic() + seconds
            while not chaos.done or time.monotonic() < end:
                chaos.one_fault()
                clients.check_all_live()
        amid = 0 if clients.job is None else len(clients.job.progress())
        load.settle()
    kinds = Counter(chaos.done)
    print(f"seed {seed}, {seconds:g} s: {len(chaos.done)} faults of {len(kinds)} of {len(ALL_FAULTS)} kinds")
    print(f"killed clients: {dict(clients.deaths)}")
    check_books(cluster, topic, clients, chaos)
    clients.check_reads()
    check_kafka_clients(load, chaos)
    if clients.job is not None:
        check_job(clients.job, clients, cluster, topic)
        print(f"the job's output is the log, in {len(clients.job.progress())} batches, {amid} of them amid faults")
    check_logs(cluster)
    wait_until_back(cluster, before)
    print(f"brokers held at most {before.most} before, {holdings(cluster).most} after")


def cluster_for(make_cluster: Callable[..., LocalCluster]) -> LocalCluster:
    """Three brokers with two log directories each, a ZooKeeper of their own, and small coordinators; not started."""
    return with_two_directories(make_cluster(brokers=3, zookeeper=None, up=False, settings=SETTINGS))


def test_after_some_random_faults_the_books_balance(make_cluster: Callable[..., LocalCluster], tmp_path: Path) -> None:
    """And the way to calm; of Kafka clients librdkafka alone, and no Spark job, whose start is long."""
    seed = int(os.environ.get("SOAK_SEED", "1"))
    workloads = {LIBRDKAFKA: WORKLOADS[LIBRDKAFKA]}
    soak(cluster_for(make_cluster), tmp_path, SHORT_SECONDS, seed, with_job=False, workloads=workloads)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(0)
def test_after_as_long_as_wanted_the_books_balance(make_cluster: Callable[..., LocalCluster], tmp_path: Path) -> None:
    """Ten minutes, or what ``make soak`` was given."""
    seconds, seed = float(os.environ.get("SOAK_SECONDS", "600")), int(os.environ.get("SOAK_SEED", "2"))
    with_job = os.environ.get("SOAK_SPARK", "1") != "0"
    workloads = had(WORKLOADS)
    soak(cluster_for(make_cluster), tmp_path, seconds, seed, with_job=with_job, workloads=workloads)
