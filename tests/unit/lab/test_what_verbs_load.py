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
NEVER = ("aiokafka.client", "confluent_kafka", "kazoo", "pyspark", "tidegauge_broker.coordinator.shard")
LIMITS: dict[str, tuple[int, tuple[str, ...]]] = {
    "--version": (195, ("asyncio", "yaml", *RPC, *RECORDS)),
    "up": (255, ("yaml", "tidegauge_broker.log.partition_log", *RPC, *RECORDS)),
    "status": (255, ("yaml", "tidegauge_broker.log.partition_log", *RPC, *RECORDS)),
    "list-topics": (460, ("yaml", "tidegauge_broker.log.partition_log", *RECORDS)),
    "describe-topic": (460, ("yaml", "tidegauge_broker.log.partition_log", *RECORDS)),
    "list-groups": (460, ("yaml", "tidegauge_broker.log.partition_log", *RECORDS)),
    "wait": (480, ("yaml", "tidegauge_broker.log.partition_log", *RECORDS)),
    "explain": (490, ("yaml", "tidegauge_broker.log.partition_log", *RECORDS)),
    "consume": (520, ("yaml", "tidegauge_broker.log.partition_log")),
    "timeline": (525, ("yaml", "tidegauge_broker.log.partition_log", *RECORDS)),
    "kill": (550, ("yaml", "tidegauge_broker.log.partition_log", *RECORDS)),
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


def test_a_node_loads_no_client_of_kafka_and_no_spark() -> None:
    program = "import sys, tidegauge_broker.server.verb, tidegauge_broker.server.quorum.verb\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], check=True, capture_output=True, text=True, timeout=120
    )
    assert not set(done.stdout.split()) & {
        "aiokafka.client",
        "confluent_kafka",
        "pyspark",
        "yaml",
        "tidegauge_lab.cli.main",
    }
