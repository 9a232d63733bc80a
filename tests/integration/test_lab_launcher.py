"""The brokers' launcher: loads once and forks each broker; what it starts is as if it had been started alone.

Source: docs/adr/0007-brokers-are-forked.md; section 8 of the design (start-up to the first acknowledged record).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import until

from tidegauge_lab.local import launcher
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.launcher import Launcher
from tidegauge_lab.local.processes import LabProcess

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="brokers are forked on Linux alone"),
]


def process_in(directory: Path, name: str) -> LabProcess:
    return LabProcess(name, directory / name, directory / "logs" / f"{name}.log")


def broker_command(config: Path) -> list[str]:
    return [sys.executable, "-P", "-m", "tidegauge_broker.server.verb", "--config", str(config)]


def test_brokers_of_a_cluster_are_separate_processes_with_their_own_command_lines(cluster: LocalCluster) -> None:
    pids = {broker.id: cluster.pid_of(broker.id) for broker in cluster.file.brokers}
    for broker_id, pid in pids.items():
        assert pid is not None
        directory = cluster.directory / f"broker-{broker_id}"
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode().split("\0")
        assert words == broker_command(directory / "server.properties")
        assert os.getsid(pid) == pid, "Ctrl-C at the lab must not reach it"
        assert Path(f"/proc/{pid}/cwd").readlink() == directory
        assert str(Path(f"/proc/{pid}/fd/0").readlink()) == os.devnull
        assert Path(f"/proc/{pid}/fd/2").readlink() == cluster.logs / f"broker-{broker_id}.log"
    assert len(set(pids.values())) == len(pids)


def test_what_a_broker_imports_begins_no_thread() -> None:
    """The rule that allows the fork: threads, gRPC's own too, would be missing in the brokers, and their locks held."""
    program = f"import os, {launcher.MODULE}; print(len(os.listdir('/proc/self/task')))"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "1\n"


def test_a_broker_that_cannot_start_says_why_in_its_own_log_and_the_next_one_starts_all_the_same(
    tmp_path: Path,
) -> None:
    lacking = tmp_path / "lacking.properties"
    lacking.write_text("listeners=PLAINTEXT://127.0.0.1:0\n")
    first, second = process_in(tmp_path, "broker-0"), process_in(tmp_path, "broker-1")
    with Launcher(tmp_path, wanted=True) as one:
        pids = [one.start(process, broker_command(lacking)) for process in (first, second)]
        for process in (first, second):
            until(lambda process=process: process.pid is None)
            assert "broker.id is missing" in process.last_words()
    assert pids[0] != pids[1]


def test_a_broker_has_the_variables_that_it_was_given(tmp_path: Path) -> None:
    lacking = tmp_path / "lacking.properties"
    lacking.write_text("listeners=PLAINTEXT://127.0.0.1:0\n")
    process = process_in(tmp_path, "broker-0")
    variables = {"PATH": os.environ.get("PATH", ""), "KAFKA_BROKER_ID": "7"}
    with Launcher(tmp_path, wanted=True) as one:
        one.start(process, [*broker_command(lacking), "--environment"], variables)
        until(lambda: process.pid is None)
    assert "zookeeper.connect is missing" in process.last_words(), "the id came from the variable"


def test_without_a_launcher_a_broker_is_started_by_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation that is broken must tell in the broker's log."""
    monkeypatch.setattr(launcher, "MODULE", "tidegauge_broker.server.no_such_launcher")
    process = process_in(tmp_path, "broker-0")
    with Launcher(tmp_path, wanted=True) as one:
        pid = one.start(process, [sys.executable, "-c", "print('started alone')"])
    assert pid > 0
    until(lambda: process.pid is None)
    assert process.last_words() == "started alone"
