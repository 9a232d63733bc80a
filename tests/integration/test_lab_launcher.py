"""The brokers' launcher: loads once and forks each broker; what it starts is as if it had been started alone.

A launcher that is kept serves every start of its process.

Source: docs/adr/0007-brokers-are-forked.md; section 8 of the design (start-up to the first acknowledged record).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.conftest import MakeCluster
from tests.waiting import until

from tidegauge_lab.local import launcher
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.launcher import Launcher
from tidegauge_lab.local.processes import LabProcess, ProcessState

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="brokers are forked on Linux alone"),
]


@pytest.fixture(autouse=True)
def none_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test says itself whether a launcher is kept."""
    monkeypatch.setattr(launcher, "_kept", [])


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
    program = f"import os, {launcher.BROKER}, {launcher.CONTROLLER}; print(len(os.listdir('/proc/self/task')))"
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


def parent_of(pid: int | None) -> int:
    """The parent of a process that lives."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat[stat.rindex(")") + 1 :].split()[1])


def launchers_of(directory: Path) -> list[int]:
    """Pids of living launchers with this directory in their command lines; these show a moment after the start."""
    sign = f" -m {launcher.MODULE} {directory}/ "
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and sign in (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode():
                found.append(int(entry.name))
    return found


def lacking_config(directory: Path) -> Path:
    config = directory / "lacking.properties"
    config.write_text("listeners=PLAINTEXT://127.0.0.1:0\n")
    return config


def test_a_kept_launcher_forks_each_broker_that_is_started_until_it_is_kept_no_more(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster(up=False, brokers=2)
    with launcher.kept(tmp_path):
        [one] = until(lambda: launchers_of(tmp_path))
        cluster.up()
        assert launchers_of(cluster.directory) == [], "its own launcher would load again what the kept one has"
        assert [parent_of(cluster.pid_of(broker_id)) for broker_id in (0, 1)] == [one, one]
        cluster.kill(1)
        cluster.start(1)
        assert parent_of(cluster.pid_of(1)) == one
    assert launchers_of(tmp_path) == []
    assert cluster.state_of(0) is ProcessState.UP
    cluster.kill(1)
    cluster.start(1)
    assert parent_of(cluster.pid_of(1)) == os.getpid(), "by its command"


def test_a_broker_that_has_ended_is_no_zombie_of_the_launcher_that_is_kept(tmp_path: Path) -> None:
    process = process_in(tmp_path, "broker-0")
    with launcher.kept(tmp_path), Launcher(tmp_path, wanted=True) as one:
        pid = one.start(process, broker_command(lacking_config(tmp_path)))
        until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_launcher_that_was_kept_under_other_variables_does_not_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loaded modules depend on them: PYTHONPATH and TIDEGAUGE_COMPILED choose the broker's."""
    with launcher.kept(tmp_path / "kept"):
        with monkeypatch.context() as changed:
            changed.setenv("TIDEGAUGE_COMPILED", "off")
            with Launcher(tmp_path / "own", wanted=True):
                assert len(until(lambda: launchers_of(tmp_path / "own"))) == 1
        monkeypatch.setenv("PYTEST_CURRENT_TEST", "another test")
        with Launcher(tmp_path / "own", wanted=True):
            assert launchers_of(tmp_path / "own") == []


def test_when_a_kept_launcher_has_ended_brokers_are_started_as_without_it(tmp_path: Path) -> None:
    process = process_in(tmp_path, "broker-0")
    with launcher.kept(tmp_path / "kept"), Launcher(tmp_path, wanted=False) as one:
        [pid] = until(lambda: launchers_of(tmp_path / "kept"))
        os.kill(pid, signal.SIGKILL)
        one.start(process, [sys.executable, "-c", "print('started alone')"])
        until(lambda: process.pid is None)
    assert process.last_words() == "started alone"


def test_a_launcher_ends_with_the_process_that_keeps_it_also_where_that_has_forked(tmp_path: Path) -> None:
    """A process that the owner forked, as multiprocessing does, must not hold the pipe open."""
    program = (
        "import os, sys; from pathlib import Path; from tidegauge_lab.local import launcher\n"
        "kept = launcher.kept(Path(sys.argv[1])); kept.__enter__()\n"
        "if os.fork() == 0: sys.stdin.read(); os._exit(0)\n"
        "print('forked', flush=True); os.kill(os.getpid(), 9)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"forked\n"
        until(lambda: launchers_of(tmp_path) == [])


def test_a_launcher_that_was_begun_ahead_is_taken_over_by_the_next_start(tmp_path: Path) -> None:
    process = process_in(tmp_path, "broker-0")
    with launcher.ahead(tmp_path, launcher.BROKER):
        [begun] = until(lambda: launchers_of(tmp_path))
        with Launcher(tmp_path, wanted=True) as one:
            assert launchers_of(tmp_path) == [begun], "none is begun beside it"
            one.start(process, broker_command(lacking_config(tmp_path)))
            until(lambda: process.pid is None)
        assert launchers_of(tmp_path) == []


@pytest.mark.parametrize("is_ordered", [True, False])
def test_a_launcher_that_was_begun_ahead_ends_where_nothing_is_started(tmp_path: Path, *, is_ordered: bool) -> None:
    with launcher.ahead(tmp_path, launcher.CONTROLLER):
        until(lambda: launchers_of(tmp_path))
        if is_ordered:
            with Launcher(tmp_path, wanted=False):
                assert launchers_of(tmp_path) == []
    assert launchers_of(tmp_path) == []
