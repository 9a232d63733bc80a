"""The compared parts of a cluster: its znodes and its files, as lines with a name each.

- znodes: each key of a JSON payload for itself, else the text; version of the data, whether it is ephemeral.
- files: which there are, how long each log is; checkpoints, ``meta.properties``, ``partition.metadata`` line by line;
  what Kafka's own DumpLogSegments prints of logs, indexes and snapshots, on both sides' files.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from differential_sides import BROKERS, TIDEGAUGE, TOOL_JVM, Side
from tests.zookeeper_view import ZooKeeperView

from tidegauge.java import java_program

Facts = dict[str, str]
TEXT_FILES = (
    "meta.properties",
    "partition.metadata",
    "leader-epoch-checkpoint",
    "replication-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
)
DUMPED = (".log", ".index", ".timeindex", ".snapshot")


def znodes(view: ZooKeeperView) -> Facts:
    """Every znode."""
    facts = {}
    for path, node in view.tree().items():
        kind = "ephemeral" if node.owner else "persistent"
        facts[f"znode {path}"] = f"{kind}, version {node.version}"
        facts |= {f"znode {path} {name}": text for name, text in _fields(node.data)}
    return facts


def _fields(data: bytes | None) -> Iterator[tuple[str, str]]:
    if data is None:
        yield "data", "null"
        return
    try:
        document = json.loads(data)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        yield "data", data.decode("utf-8", "backslashreplace")
        return
    yield "keys", ",".join(document)
    yield from ((name, json.dumps(value, separators=(",", ":"))) for name, value in document.items())


def checkpoints(side: Side) -> Facts:
    """Return the small files of all brokers, line by line."""
    facts = {}
    for broker_id in BROKERS:
        directory = side.directory(broker_id)
        for path in sorted(path for name in TEXT_FILES for path in directory.rglob(name)):
            where = f"file broker-{broker_id}/{path.relative_to(directory)}"
            try:
                lines = path.read_text("utf-8").splitlines()
            except FileNotFoundError:  # replaced or deleted at this moment
                continue
            if path.name.endswith("-offset-checkpoint"):
                lines = lines[:2] + sorted(lines[2:])  # a map's lines, in no order
            facts[where] = "\n".join(line for line in lines if not line.startswith("#"))
    return facts


def names(side: Side, *, lengths: bool) -> Facts:
    """Which files there are; ``lengths`` also how long, else the lengths of logs alone."""
    facts = {}
    for broker_id in BROKERS:
        directory = side.directory(broker_id)
        for path in sorted(directory.rglob("*")):
            length = path.stat().st_size if path.is_file() and (lengths or path.suffix == ".log") else None
            kind = "folder" if path.is_dir() else "file" if length is None else f"file of {length} bytes"
            facts[f"name broker-{broker_id}/{path.relative_to(directory)}"] = kind
    return facts


def dumps(side: Side) -> Facts:
    """Return all logs, indexes and snapshots as Kafka's tool reads them, or ours."""
    directories = {broker_id: side.directory(broker_id) for broker_id in BROKERS}
    files = sorted(
        path
        for directory in directories.values()
        for path in directory.glob("*/*")
        if path.suffix in DUMPED and not path.parent.name.endswith("-delete")
    )
    names_of_files = [str(path) for path in files]
    if side.tool_jars is None:
        command = [TIDEGAUGE, "dump-log", "--print-data-log", *names_of_files]
    else:
        command = [
            java_program(),
            *TOOL_JVM,
            "-cp",
            f"{side.tool_jars}/*",
            "kafka.tools.DumpLogSegments",
            "--print-data-log",
        ]
        command += ["--files", ",".join(names_of_files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    facts = {f"dump of {side.name} ended with": f"{done.returncode}"} if done.returncode else {}
    current, count = "", 0
    for line in done.stdout.splitlines():
        if line.startswith("Dumping "):
            current, count = _short(line.removeprefix("Dumping "), directories), 0
        else:
            facts[f"dump {current} line {count}"] = _short(line, directories)
            count += 1
    complaints = [line for line in done.stderr.splitlines() if not line.startswith("SLF4J")]
    facts |= {f"dump complaint {number}": _short(line, directories) for number, line in enumerate(complaints)}
    return facts


def _short(text: str, directories: dict[int, Path]) -> str:
    for broker_id, directory in directories.items():
        text = text.replace(str(directory), f"broker-{broker_id}")
    return re.sub(r"\s+", " ", text)
