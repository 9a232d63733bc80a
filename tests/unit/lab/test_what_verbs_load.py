"""A person waits for a verb's imports at each Tab and each step of a lab: a table of limits.

The numbers are modules of the whole process, a twentieth above today's; a verb that needs more says why
in the commit that raises its row.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import contextlib, io, sys
sys.argv = ["tidegauge", *sys.argv[1:]]
from tidegauge_client.cli.main import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
print(*sys.modules)
"""
RPC = ("grpc", "google.protobuf")
RECORDS = ("aiokafka.codec", "cramjam")
NEVER = (
    "aiokafka.client",
    "confluent_kafka",
    "importlib.metadata",
    "kazoo",
    "pyspark",
    "tidegauge_broker.coordinator.shard",
)
LIMITS: dict[str, tuple[int, tuple[str, ...]]] = {
    "--version": (136, ("asyncio", "yaml", *RPC, *RECORDS)),
    "up": (216, ("yaml", "tidegauge_broker.log.partition_log", *RPC, *RECORDS)),
    "status": (216, ("yaml", "tidegauge_broker.log.partition_log", *RPC, *RECORDS)),
    "kill": (350, ("yaml", "tidegauge_broker.log.partition_log", *RPC, *RECORDS)),
    "timeline": (386, ("yaml", "tidegauge_broker.log.partition_log", *RPC, *RECORDS)),
    "list-topics": (425, ("yaml", "tidegauge_broker.log.partition_log", *RECORDS)),
    "describe-topic": (425, ("yaml", "tidegauge_broker.log.partition_log", *RECORDS)),
    "list-groups": (425, ("yaml", "tidegauge_broker.log.partition_log", *RECORDS)),
    "wait": (443, ("yaml", "tidegauge_broker.log.partition_log", *RECORDS)),
    "explain": (453, ("yaml", "tidegauge_broker.log.partition_log", *RECORDS)),
    "isolate": (475, ("yaml", "tidegauge_broker.log.partition_log", *RECORDS)),
    "consume": (481, ("yaml", "tidegauge_broker.log.partition_log")),
}
"""By verb: the most modules, and excluded ones; ``--help`` of a verb loads what the verb does."""


@pytest.mark.parametrize("verb", LIMITS)
def test_a_verb_loads_no_more_than_its_row_says(verb: str) -> None:
    words = [verb] if verb.startswith("-") else [verb, "--help"]
    command = [sys.executable, "-P", "-c", _PROGRAM, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    loaded = set(done.stdout.split())
    most, absent = LIMITS[verb]
    assert not loaded & {*absent, *NEVER}
    assert len(loaded) <= most


def test_status_loads_what_it_shows_and_no_admin_client() -> None:
    """Its ``--help`` loads no implementation, so this looks at what ``show`` imports."""
    program = "import sys, tidegauge_lab.cli.running, tidegauge_lab.watch.observed_facts\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], check=True, capture_output=True, text=True, timeout=120
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"tidegauge_client.admin", "tidegauge_lab.watch.sources", "yaml", *RECORDS, *NEVER}
    assert len(loaded) <= 465


def test_a_node_loads_no_client_of_kafka_or_zookeeper_and_no_spark() -> None:
    """A broker loads its client of ZooKeeper once its settings name one; in a KRaft cluster it saves 2 MB."""
    server = "tidegauge_broker.server"
    modules = [f"{server}.{name}" for name in ("verb", "quorum.verb", "lab.lab", "lab.controller_lab", "warm_up")]
    program = f"import sys, {', '.join(modules)}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], check=True, capture_output=True, text=True, timeout=120
    )
    assert not set(done.stdout.split()) & {
        "aiokafka.client",
        "confluent_kafka",
        "kazoo",
        "pyspark",
        "tidegauge_broker.server.cluster.zookeeper.cluster",
        "tidegauge_controller.zookeeper.controller",
        "yaml",
        "tidegauge_lab.cli.main",
    }
