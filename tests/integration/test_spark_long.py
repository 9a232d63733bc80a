"""Long tests with Spark: the jobs as people run them, and workers without the package, which are killed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest
from tests.integration.conftest import metadata_at
from tests.integration.spark_runs import Job, check_exactly_once

import tidegauge
import tidegauge_client
import tidegauge_spark
from tidegauge_client import Admin, Producer
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1200)]

JOBS = Path(__file__).parents[2] / "spark_jobs"
TIDEGAUGE = str(Path(sys.executable).parent / "tidegauge")


@pytest.fixture(scope="module")
def brokers(
    zookeeper: str, next_base_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    made = LocalCluster.create(
        tmp_path_factory.mktemp("spark-long"),
        3,
        **metadata_at(zookeeper, "spark-long"),
        base_port=next_base_port(),
        settings={"auto.leader.rebalance.enable": "false"},
    )
    made.up()
    yield made
    made.down(grace_seconds=0)


async def run_job(name: str, *arguments: str) -> tuple[int, str, dict[str, Any]]:
    """Exit code, text and last line of a job."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(JOBS / f"{name}.py"),
        *arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
    )
    stdout, stderr = await process.communicate()
    *text, last = stdout.decode().splitlines() or [""]
    assert last, stderr.decode()[-3000:]
    return process.returncode or 0, "\n".join(text), json.loads(last)


async def test_the_jobs_as_people_run_them(brokers: LocalCluster, tmp_path: Path) -> None:
    """History of a real producer through a killed leader: the books balance, and the report tells the failover."""
    topic, history = "booked", tmp_path / "history.jsonl"
    async with Admin(brokers.bootstrap_servers) as admin:
        await admin.create_topic(topic, assignment=[[0, 1, 2], [1, 2, 0]])
        await admin.wait_for_topic(topic)
    servers = ",".join(brokers.bootstrap_servers)
    command = [
        TIDEGAUGE,
        "produce",
        topic,
        "-b",
        servers,
        "--count",
        "3000",
        "--rate",
        "300",
        "--history",
        str(history),
    ]
    producer = await asyncio.create_subprocess_exec(*command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not history.exists() or history.stat().st_size < 20_000:
        assert producer.returncode is None
        await asyncio.wait({asyncio.ensure_future(producer.wait())}, timeout=0.1)
    await asyncio.to_thread(brokers.kill, 0)
    assert await producer.wait() == 0
    await asyncio.to_thread(brokers.start, 0)

    audit = ["--bootstrap-server", servers, "--topic", topic, "--history", str(history), "--complete"]
    code, text, report = await run_job("audit_history", *audit)
    assert (code, report["balanced"], report["records"]) == (0, True, 3000), text
    assert report["acks"]["all"]["kept"] == 3000

    events = ["--events", str(brokers.logs), "--topic", topic, "--output", str(tmp_path / "report")]
    code, text, report = await run_job("replication_report", *events)
    assert code == 0
    first = report["partitions"][0]
    assert (first["topic"], first["partition"], first["leader_changes"]) == (topic, 0, 1), text
    assert first["leaderless_ms"] > 0
    assert json.loads((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))["partitions"][0] == first

    lines = history.read_text(encoding="utf-8").splitlines()
    acknowledged = next(line for line in map(json.loads, lines) if line["type"] == "ok")
    forged = json.dumps(acknowledged | {"number": 9999, "offset": acknowledged["offset"]})
    invoked = next(line for line in map(json.loads, lines) if line["type"] == "invoke")
    history.write_text("\n".join([*lines, json.dumps(invoked | {"number": 9999, "value": "gone"}), forged, ""]))
    code, text, report = await run_job("audit_history", *audit)
    assert (code, report["counts"]["lost"]) == (1, 1), text
    assert "The books do not balance." in text


def bare_python(directory: Path) -> Path:
    """A Python that has all libraries of this one, but not the project."""
    venv.create(directory, symlinks=True)
    (lib,) = (directory / "lib").glob("python3.*")
    # Unlike the environment's own directory this one is only searched for packages: its .pth files don't count.
    # It comes first, since PySpark there is compiled, in Spark's own archive not: so workers start three times as fast.
    line = f"import sys; sys.path.insert(0, {sysconfig.get_path('purelib')!r})\n"
    (lib / "site-packages" / "libraries.pth").write_text(line, encoding="utf-8")
    python = directory / "bin" / "python"
    bare = os.environ | {"PYTHONPATH": ""}
    assert (
        subprocess.run([python, "-c", "import tidegauge"], capture_output=True, check=False, env=bare).returncode == 1
    )
    return python


def archive_of_packages(path: Path) -> Path:
    """Write the archive that the guide gives to --py-files."""
    with zipfile.ZipFile(path, "w") as zipped:
        for package in (tidegauge, tidegauge_client, tidegauge_spark):
            directory = Path(package.__path__[0])
            for file in directory.rglob("*.py"):
                zipped.write(file, file.relative_to(directory.parent))
    return path


def children(job: Job, *words: str) -> list[psutil.Process]:
    """Processes under the job whose command line has all the words."""
    assert job.process is not None
    found = []
    for one in psutil.Process(job.process.pid).children(recursive=True):
        try:
            line = " ".join(one.cmdline())
        except psutil.Error:
            continue
        if all(word in line for word in words):
            found.append(one)
    return found


@pytest.mark.timeout(1_800)
async def test_workers_without_the_package_are_killed(brokers: LocalCluster, tmp_path: Path) -> None:
    """--py-files alone, executors in processes of their own: a Python worker and then an executor die by kill -9."""
    topic = "killed-workers"
    async with Admin(brokers.bootstrap_servers) as admin:
        await admin.create_topic(topic, partitions=3, replication_factor=3, configs={"min.insync.replicas": "2"})
        await admin.wait_for_topic(topic)
    acknowledged = {}
    async with Producer(brokers.bootstrap_servers, acks="all") as producer:
        futures = {b"v%d" % number: await producer.send(topic, b"v%d" % number) for number in range(6_000)}
        await producer.flush()
        for value, future in futures.items():
            place = await future
            acknowledged[value] = (place.partition, place.offset)
    python = str(await asyncio.to_thread(bare_python, tmp_path / "python"))
    submit = [str(Path(pyspark.__path__[0]) / "bin" / "spark-submit"), "--master", "local-cluster[2,1,1024]"]
    submit += ["--py-files", str(archive_of_packages(tmp_path / "tidegauge.zip"))]
    names = {
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_HOME": pyspark.__path__[0],
        "PYTHONPATH": "",
    }
    # A local cluster's workers leave their directories in Spark's own.
    work = Path(pyspark.__path__[0]) / "work"
    others = set(work.glob("app-*"))
    job = Job(tmp_path, brokers, topic)
    try:
        job.start_with(submit, "--available-now", "--max-offsets-per-trigger", "300", **names)
        await job.wait("two batches", lambda: len(job.progress()) >= 2, 400)
        workers = children(job, "pyspark.daemon")
        assert workers, "executors fork their Python workers from a daemon"
        for worker in workers:
            worker.kill()
        seen = len(job.progress())
        await job.wait("batches after the kill of Python workers", lambda: len(job.progress()) > seen + 1, 400)
        executors = children(job, "CoarseGrainedExecutorBackend")
        assert len(executors) == 2
        executors[0].kill()
        seen = len(job.progress())
        await job.wait("batches after the kill of an executor", lambda: len(job.progress()) > seen + 1, 400)
        summary = await job.end(600)
    finally:
        job.clean_up()
        for directory in set(work.glob("app-*")) - others:
            shutil.rmtree(directory)
    assert summary["rows"] == len(acknowledged)
    check_exactly_once(job.output, topic, acknowledged)
