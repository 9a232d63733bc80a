"""The examples of docs/clients.md, each run against a cluster: it writes "hello" and reads it, as the page says.

An example is skipped if this machine lacks a requirement of it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.clients import programs
from tests.clients.programs import KAFKA, KAFKA_4, Unavailable
from tests.documents import Block, blocks

from tidegauge.java import java_program
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import LATEST
from tidegauge_client.sync import SyncAdmin
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
LIMIT_SECONDS = 240
NAMES = {"python": "hello.py", "java": "Hello.java"}
Commands = tuple[list[str], dict[str, str]]
"""A command, and the variables of its environment."""


def examples() -> dict[str, Block]:
    """Return the block that is run under each heading of the quick start."""
    found: dict[str, Block] = {}
    text = PAGE.read_text(encoding="utf-8").partition("## Quick start")[2].partition("\n## ")[0]
    for section in text.split("\n### ")[1:]:
        heading, _, body = section.partition("\n")
        for block in blocks(body):
            if not block.comment.startswith("not run: "):
                found[heading] = block
    return found


def of_python(file: Path) -> Commands:
    return [sys.executable, str(file)], {}


def of_java(version: str) -> Callable[[Path], Commands]:
    return lambda file: ([java_program(), "-cp", f"{programs.kafka_jars(version)}/*", str(file)], {})


def of_go(file: Path) -> Commands:
    """Built with the modules that tests/clients/go pins."""
    module = file.parent / "module"
    module.mkdir()
    for name in ("go.mod", "go.sum"):
        (module / name).write_bytes((programs.HERE / "go" / name).read_bytes())
    (module / "main.go").write_bytes(file.read_bytes())
    binary = file.with_suffix("")
    programs.run([programs.which("go"), "build", "-trimpath", "-buildvcs=false", "-o", str(binary), "."], module)
    return [str(binary)], {}


def of_javascript(file: Path) -> Commands:
    return [programs.which("node"), str(file)], {"NODE_PATH": str(programs.node_modules("kafkajs"))}


def of_kcat(file: Path) -> Commands:
    programs.which("kcat")
    return ["bash", "-euo", "pipefail", str(file)], {}


def of_spark(file: Path) -> Commands:
    pyspark = pytest.importorskip("pyspark", reason="pip install -e '.[spark]' brings it")
    _, jars = programs.connector_jars(pyspark.__version__)
    options = f"--jars {','.join(map(str, jars))} --master local[1] --conf spark.ui.enabled=false pyspark-shell"
    return [sys.executable, str(file)], {"PYSPARK_SUBMIT_ARGS": options, "SPARK_LOCAL_IP": "127.0.0.1"}


LONG = [pytest.mark.long]
RUNNERS = [
    pytest.param("Python: confluent-kafka", of_python),
    pytest.param("Python: kafka-python", of_python),
    pytest.param("Python: aiokafka", of_python),
    pytest.param("Java", of_java(KAFKA), id=f"Java {KAFKA}"),
    pytest.param("Java", of_java(KAFKA_4), id=f"Java {KAFKA_4}", marks=LONG),
    pytest.param("Go: franz-go", of_go, marks=LONG),
    pytest.param("Go: sarama", of_go, marks=LONG),
    pytest.param("JavaScript: kafkajs", of_javascript),
    pytest.param("C: kcat", of_kcat),
    pytest.param("Spark", of_spark, marks=[*LONG, pytest.mark.spark]),
]


@pytest.mark.parametrize(("heading", "runner"), RUNNERS)
def test_an_example_writes_a_record_and_shows_it(
    heading: str, runner: Callable[[Path], Commands], cluster: LocalCluster, tmp_path: Path
) -> None:
    block = examples()[heading]
    topic = re.sub(r"\W+", "_", f"greetings_{tmp_path.name}")  # a name for Python's variable, too
    with SyncAdmin(cluster.bootstrap_servers) as admin:
        admin.create_topic(topic, partitions=1, replication_factor=3)
        text = block.text.replace("127.0.0.1:9092", cluster.kafka_bootstrap_servers[0])
        file = tmp_path / NAMES.get(block.language, f"hello.{block.language}")
        file.write_text(re.sub(r"\bgreetings\b", topic, text), encoding="utf-8")
        try:
            command, variables = runner(file)
        except Unavailable as problem:
            pytest.skip(f"{heading} can't be had here: {problem}")
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=os.environ | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_SECONDS,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3_000:]}"
        assert "hello" in done.stdout, done.stderr[-3_000:]
        [end] = admin.list_offsets({TopicPartition(topic, 0): LATEST}).values()
        assert end.offset == 1


def test_every_example_is_run() -> None:
    """A section whose only block has a comment "not run" is no example."""
    assert set(examples()) == {str(one.values[0]) for one in RUNNERS}
