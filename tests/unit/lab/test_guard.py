"""The guard of a cluster (guard.py), without a cluster: what it takes for one of its processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tidegauge_lab.local.guard import MODULE, command_lines, of_cluster

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
    """Rule 5: each session that uses the cluster has one beside it."""
    code = (
        f"import sys, {MODULE}\n"
        "heavy = {'grpc', 'google', 'kazoo', 'click', 'pytest', 'tidegauge', 'tidegauge_client', 'tidegauge_broker'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_a_released_guard_leaves_the_cluster_alone(tmp_path: Path) -> None:
    """Rule 1; it notes what it does, and here it does nothing."""
    (tmp_path / "logs").mkdir()
    for given, logs in ((b"released\n", []), (b"", ["guard.log"])):
        subprocess.run([sys.executable, "-m", MODULE, str(tmp_path), "17"], input=given, timeout=60, check=True)
        assert [path.name for path in (tmp_path / "logs").iterdir()] == logs
    assert "process 17, whose cluster this was, ended without taking it down" in (
        tmp_path / "logs" / "guard.log"
    ).read_text(encoding="utf-8")
