"""The guard of a cluster (guard.py), without a cluster: what it takes for one of its processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidegauge_lab.demo.query import Query
from tidegauge_lab.local import guard, locks
from tidegauge_lab.local.guard import LOCK_FILE, MODULE, command_lines, having, of_cluster
from tidegauge_lab.local.waiting import TimeLimitError
from tidegauge_lab.scenario.client_processes import sign_of

HERE = Path("/tmp/session 1/cluster")
OF_CLUSTER = (
    f"python -P -m tidegauge_broker.server.launcher {HERE}/ {' ' * 64}",
    f"python -P -m tidegauge_broker.server.verb --config {HERE}/broker-12/server.properties --override lab.held=t-0",
    f"java -Xmx64m -cp a.jar:b.jar org.apache.zookeeper.server.quorum.QuorumPeerMain {HERE}/zookeeper/zoo.cfg",
    f"python -P -m tidegauge_lab.cli.control --dir {HERE} --listen 127.0.0.1:0",
)
OF_OTHERS = (
    *(command.replace(str(HERE), f"{HERE}-2") for command in OF_CLUSTER),
    f"tail -f {HERE}/logs/broker-0.log",
    f"python -P -m {MODULE} {HERE} 17",
    f"python -m pytest --basetemp {HERE}/",
    "",
)


def test_processes_of_a_cluster_are_known_by_their_command_lines() -> None:
    """Rule 3: a process that the owner has not noted; nothing that merely names the directory is ended."""
    commands = dict(enumerate((*OF_OTHERS, *OF_CLUSTER)))
    assert of_cluster(HERE, commands) == list(range(len(OF_OTHERS), len(commands)))


def test_the_command_line_of_a_process_is_seen() -> None:
    code = "print(flush=True);input()"
    command = [sys.executable, "-c", code, "a b", "c"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()  # while a program is being loaded its process has no command line
        assert command_lines()[child.pid] == f"{sys.executable} -c {code} a b c"
        child.stdin.write(b"\n")


def test_a_guard_loads_nothing_but_the_standard_library() -> None:
    """Rule 6: each session that uses the cluster has one beside it."""
    code = (
        f"import sys, {MODULE}\n"
        "heavy = {'grpc', 'google', 'kazoo', 'click', 'pytest', 'tidegauge', 'tidegauge_client', 'tidegauge_broker'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


ENDLESS = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"


def begin(*words: str) -> subprocess.Popen[bytes]:
    """Begin a process with these words in its command line, which only SIGKILL ends; its session is its own."""
    process = subprocess.Popen([sys.executable, "-c", ENDLESS, *words], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def run_guard(given: bytes, *arguments: str) -> None:
    """A guard from its start to its end; what it is given is what its owner writes before it ends."""
    subprocess.run([sys.executable, "-m", MODULE, *arguments, "--owner=17"], input=given, timeout=60, check=True)


def test_a_released_guard_leaves_the_cluster_alone_and_another_one_ends_it(tmp_path: Path) -> None:
    """Rules 1, 3 and 5."""
    (tmp_path / "logs").mkdir()
    launcher = begin("-m", "tidegauge_broker.server.launcher", f"{tmp_path}/")
    try:
        run_guard(b"released\n", str(tmp_path))
        assert launcher.poll() is None
        assert list((tmp_path / "logs").iterdir()) == []
        run_guard(b"", str(tmp_path))
        assert launcher.wait(60) == -signal.SIGKILL
    finally:
        end(launcher)
    said = (tmp_path / "logs" / "guard.log").read_text(encoding="utf-8")
    assert f"ended processes {launcher.pid}, known by their command lines\n" in said
    assert "process 17, whose cluster this was, did not take it down" in said


def test_a_guard_that_finds_nothing_to_end_says_nothing(tmp_path: Path) -> None:
    """Its owner was interrupted after it had taken the cluster down: the log would tell of something that was not."""
    (tmp_path / "logs").mkdir()
    run_guard(b"", str(tmp_path))
    assert list((tmp_path / "logs").iterdir()) == []


def test_further_processes_end_by_their_signs_and_a_temporary_directory_is_deleted(tmp_path: Path) -> None:
    """Rules 3 and 5. The guard's own command line has the sign too."""
    home = tmp_path / "home"
    (home / "cluster" / "logs").mkdir(parents=True)
    job, neighbour = begin("--progress-file", f"{home}/progress.jsonl"), begin("--progress-file", f"{home}-2/a")
    try:
        sign, temporary = f"--sign= --progress-file {home}/progress.jsonl ", f"--temporary={home}"
        run_guard(b"", str(home / "cluster"), sign, temporary)
        assert job.wait(60) == -signal.SIGKILL
        assert neighbour.poll() is None
        assert not home.exists()
        assert tmp_path.exists()
    finally:
        end(job)
        end(neighbour)


def test_the_clients_of_a_story_and_the_demos_job_are_known_by_their_signs() -> None:
    commands = {
        1: f"python -W ignore -m tidegauge_lab.scenario.consumer_process {HERE}/consumer-a.log {{}}",
        2: f"python -W ignore -m tidegauge_lab.scenario.producer_process {HERE}/producer-a.log {{}}",
        3: f"python consume_committed.py --checkpoint {HERE}/checkpoint --progress-file {HERE}/progress.jsonl",
        4: f"python -P -m {MODULE} {HERE}/cluster --sign={sign_of(HERE)} --sign={Query(HERE).sign}",
        5: f"tail -f {HERE}/consumer-a.log {HERE}/progress.jsonl",
        6: f"python -W ignore -m tidegauge_lab.scenario.consumer_process {HERE}-2/consumer-a.log {{}}",
    }
    assert having([sign_of(HERE)], commands) == [1, 2]
    assert having([Query(HERE).sign], commands) == [3]


def test_the_guards_lock_is_that_of_all_commands() -> None:
    """Rule 4: it can't load the module that says so."""
    assert LOCK_FILE == locks.CLUSTER_LOCK


def test_a_guard_and_the_other_commands_exclude_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 4. Without a lock file there is no cluster, and none is made."""
    monkeypatch.setattr(guard, "_LOCK_LIMIT_SECONDS", 0.0)
    with guard._alone(tmp_path) as is_held:
        assert not is_held
    assert list(tmp_path.iterdir()) == []
    with locks.hold(tmp_path / locks.CLUSTER_LOCK, 60), guard._alone(tmp_path) as is_held:
        assert not is_held, "it goes on after its limit, since nothing else would end the processes"
    with guard._alone(tmp_path) as is_held:
        assert is_held
        with pytest.raises(TimeLimitError), locks.hold(tmp_path / locks.CLUSTER_LOCK, 0):
            pass
