"""Runs the pages of docs as a reader would, and compares what comes out with what the page shows.

- A block ``sh`` is run by bash in one directory for the page, a block ``python`` by Python; a block ``text`` after it
  is its output. Each run of lines in it must be in the output unchanged, in this order; ``...`` on a line of its
  own leaves lines out.
- Parts that differ by run, or say nothing, count as equal: times, retries, how many expectations a scenario has,
  ports, processes, ids, the directory, a follower's HW in the table of replicas (it is one round late), and which
  broker coordinates a group or a transaction (the place of its partition is drawn at random).
- A comment before a block: ``<!-- not run: why -->``, or ``<!-- ends with N -->`` where the exit code is N.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tidegauge_client.cluster_file import KRAFT_MODE, ZOOKEEPER_MODE, load_cluster_file
from tidegauge_lab.local.cluster import LocalCluster

BIN = Path(sys.executable).parent
LIMIT_SECONDS = 600
_FENCE = re.compile(r"^```(\w*)$(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT_BEFORE = re.compile(r"<!-- ([^>]*) -->\s*\Z")
_README_PORT = re.compile(r"127\.0\.0\.1:1909([2-9])")
_README_KAFKA_PORT = re.compile(r"127\.0\.0\.1:909([2-4])")
_CHANGING = [
    (re.compile(r"^\s*\d+\.\d+s  "), "TIME "),
    (re.compile(r"\b\d\d:\d\d:\d\d\.\d+"), "TIME"),
    (re.compile(r"\b\d+(?:\.\d+)? (?:m?s|seconds)\b"), "TIME"),
    (re.compile(r"\b\d+ retries"), "N retries"),
    (re.compile(r"\ball \d+ expectations"), "all N expectations"),
    (re.compile(r"process \d+"), "process P"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:PORT"),
    (re.compile(r"TopicId: \S+"), "TopicId: ID"),
    (re.compile(r"producer \d+-\d+"), "producer ID"),
    (re.compile(r"/\S*/tidegauge-data"), "/DIR/tidegauge-data"),
    (re.compile(r"^(\s*\d+\s+follower\s+yes\s+\d+\s+\d+\s+)\d+\b"), r"\1HW"),  # one round late
    (re.compile(r"\bbroker-\d+ (?=\S+ +\w+, (?:generation|producer epoch) \d)"), "broker-C "),
    (re.compile(r"\s+"), " "),
]


@dataclass(frozen=True)
class Block:
    """A program of the page, and its output (None: the page does not show it)."""

    line: int
    language: str
    text: str
    comment: str = ""
    expected: str | None = None

    @property
    def is_run(self) -> bool:
        return self.language in {"sh", "python"} and not self.comment.startswith("not run: ")

    @property
    def exit_code(self) -> int:
        ending = re.fullmatch(r"ends with (\d+)", self.comment)
        return int(ending[1]) if ending else 0


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page; a block ``text`` becomes the expected output of the one that is run before it."""
    found: list[Block] = []
    for fence in _FENCE.finditer(page):
        comment = _COMMENT_BEFORE.search(page, 0, fence.start())
        block = Block(
            line=page.count("\n", 0, fence.start()) + 1,
            language=fence[1],
            text=fence[2].strip("\n"),
            comment=comment[1].strip() if comment else "",
        )
        if block.language == "text" and found and found[-1].is_run and found[-1].expected is None:
            last = found.pop()
            found.append(Block(last.line, last.language, last.text, last.comment, block.text))
        else:
            found.append(block)
    return found


def steady(line: str) -> str:
    """A line without what differs from run to run."""
    for pattern, instead in _CHANGING:
        line = pattern.sub(instead, line)
    return line.strip()


def missing(expected: str, actual: str) -> str | None:
    """Return the first lines of a page that the output lacks, or None."""
    lines = [steady(line) for line in actual.splitlines()]
    at = 0
    for run in _runs(expected):
        steadied = [steady(line) for line in run]
        found = next((i for i in range(at, len(lines)) if lines[i : i + len(run)] == steadied), None)
        if found is None:
            return "\n".join(run)
        at = found + len(run)
    return None


def _runs(expected: str) -> Iterator[list[str]]:
    run: list[str] = []
    for line in [*expected.splitlines(), "..."]:
        if line.strip() != "...":
            run.append(line)
        elif run:
            yield run
            run = []


class Reader:
    """Follows a page in a directory of its own; ``close`` takes down what the page left running."""

    kafka_ports = 3
    """Ports for Kafka clients begin that many above the first for gRPC."""

    def __init__(self, directory: Path, base_port: int) -> None:
        self.directory = directory
        self.base_port = base_port
        bare = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGAUGE_")}
        self.environment = {**bare, "PATH": f"{BIN}:{bare['PATH']}", "NO_COLOR": "1"}

    def follow(self, page: Path) -> int:
        """Run all blocks of a page; raise AssertionError if it promises something else. Return how many were run."""
        to_run = [block for block in blocks(page.read_text(encoding="utf-8")) if block.is_run]
        for block in to_run:
            self.do(block, f"{page.name}:{block.line}")
        return len(to_run)

    def _choose_ports(self, mode: str) -> None:
        """The page's cluster finds its ports recorded, ZooKeeper's too: others begin to look at the same port.

        The controllers of KRaft mode find their own ports: few tests start them at the usual one.
        """
        directory = self.directory / "tidegauge-data"
        if not directory.exists():
            ports = {"base_port": self.base_port, "kafka_port": self.base_port + self.kafka_ports}
            LocalCluster.create(directory, 3, mode=mode, **ports)
            if mode == ZOOKEEPER_MODE:
                planned = load_cluster_file(directory)
                replace(planned, zookeeper_address=f"127.0.0.1:{self.base_port + 7}").save(directory)

    def do(self, block: Block, where: str) -> None:
        """Run a block and compare its output; raise AssertionError if it differs."""
        text = self.here(block.text)
        if "tidegauge up" in text:
            self._choose_ports(KRAFT_MODE if "--kraft" in text else ZOOKEEPER_MODE)
        program = (
            [sys.executable, "-c", text] if block.language == "python" else ["bash", "-euo", "pipefail", "-c", text]
        )
        code, output = self._run(program)
        reported = f"{where}\n$ {text}\n{output}"
        assert code == block.exit_code, f"ended with {code}: {reported}"
        if block.expected is not None:
            lacking = missing(block.expected, output)
            assert lacking is None, f"the page shows, and the run does not:\n{lacking}\n\n{reported}"

    def _run(self, program: list[str]) -> tuple[int | None, str]:
        """Return exit code (None: it does not end) and output; end its children."""
        with subprocess.Popen(
            program,
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # as in a terminal
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
                return None, f"{output}\nnot ended after {LIMIT_SECONDS} s"
            return process.returncode, output

    def here(self, text: str) -> str:
        """Ports of our own, and the environment that is there already."""
        text = re.sub(r"^source \S+/activate$", "", text, flags=re.MULTILINE)
        text = _README_PORT.sub(lambda port: f"127.0.0.1:{self.base_port + int(port[1]) - 2}", text)
        kafka = self.base_port + self.kafka_ports
        text = _README_KAFKA_PORT.sub(lambda port: f"127.0.0.1:{kafka + int(port[1]) - 2}", text)
        return text.strip()

    def close(self) -> None:
        """Nothing is left running."""
        if (self.directory / "tidegauge-data").exists():
            command = ["tidegauge", "down", "--purge"]
            subprocess.run(command, cwd=self.directory, env=self.environment, timeout=120, check=True)
