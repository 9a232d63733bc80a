"""``up``, ``down`` and ids on the command line, without any process: their output, and their first checks."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.cli.main import root
from tidegauge_client.cluster_file import BrokerEntry, ClusterFile
from tidegauge_lab.cli.cluster import down, status, up
from tidegauge_lab.cli.cluster_lines import next_commands, summary
from tidegauge_lab.cli.control import control
from tidegauge_lab.cli.faults import kill
from tidegauge_lab.cli.inject import inject_error
from tidegauge_lab.cli.scenario import scenario
from tidegauge_lab.cli.watch import watch
from tidegauge_lab.cli.zk_tree import zk_tree
from tidegauge_lab.control.steering import Control
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.ports import Reservations


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TIDEGAUGE_DIR", "TIDEGAUGE_BOOTSTRAP_SERVER", "TIDEGAUGE_COMMAND_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def cluster_of(brokers: int, directory: Path) -> LocalCluster:
    directory.mkdir(parents=True)
    entries = [BrokerEntry(one, "127.0.0.1", 20_000 + one, str(directory / f"broker-{one}")) for one in range(brokers)]
    ClusterFile("127.0.0.1:20100", zookeeper_managed=True, profile="fast", brokers=entries).save(directory)
    return LocalCluster(directory)


def verbs(lines: list[str]) -> list[str]:
    return [line.split()[1] for line in lines]


def test_the_next_commands_wait_for_the_failover_and_name_no_address(tmp_path: Path) -> None:
    """Pasted one after the other, the last one shows the new leader: without the wait it would show the dead one."""
    lines = next_commands(cluster_of(3, tmp_path / "tidegauge-data"))
    assert verbs(lines) == ["create-topic", "produce", "kill", "wait", "describe-topic"]
    assert lines[-1].split()[-1] == "--replicas"
    assert "--partition 0" in lines[1], "the partition whose leader is killed has the records"
    assert not any("-b " in line or "--dir" in line for line in lines)


def test_a_single_broker_is_started_again_since_no_other_could_lead(tmp_path: Path) -> None:
    lines = next_commands(cluster_of(1, tmp_path / "tidegauge-data"))
    assert verbs(lines) == ["create-topic", "produce", "kill", "start", "wait", "describe-topic"]


def test_the_next_commands_name_the_directory_where_verbs_would_not_find_it(tmp_path: Path) -> None:
    cluster = cluster_of(3, tmp_path / "with a blank" / "c")
    assert all(shlex.split(line)[-2:] == ["--dir", str(cluster.directory)] for line in next_commands(cluster))


def test_a_variable_that_leads_elsewhere_does_not_win_over_pasted_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGAUGE_BOOTSTRAP_SERVER", "elsewhere:9092")
    lines = next_commands(cluster_of(3, tmp_path / "tidegauge-data"))
    address = "127.0.0.1:20000,127.0.0.1:20001,127.0.0.1:20002"
    assert [line.endswith(f" -b {address}") for line in lines] == [True, True, False, True, True]


def test_every_pasted_command_is_one_that_the_command_line_reads(tmp_path: Path) -> None:
    for line in next_commands(cluster_of(3, tmp_path / "c")):
        name, *arguments = shlex.split(line)[1:]
        with root.make_context("tidegauge", [name, *arguments]) as context:
            verb = root.get_command(context, name)
            assert verb is not None
            verb.make_context(name, arguments)


def test_down_of_nothing_is_done(tmp_path: Path) -> None:
    """Repeating a verb is no error (docs/command-line.md)."""
    for arguments in ([], ["--purge"]):
        done = CliRunner().invoke(down, arguments)
        assert (done.exit_code, done.stdout) == (0, "")
        assert done.stderr.startswith(f"There is no cluster in {tmp_path}/tidegauge-data")
    done = CliRunner().invoke(down, ["-o", "json"])
    assert json.loads(done.stdout) == {"directory": f"{tmp_path}/tidegauge-data", "purged": False}


def test_purge_refuses_a_directory_that_up_did_not_make(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    done = CliRunner().invoke(down, ["--purge", "--dir", "mine"])
    assert done.exit_code == 1
    assert "so nothing was deleted" in done.stderr
    assert "`tidegauge up -d`" not in done.stderr


@pytest.mark.parametrize("address", ["", "localhost:port", "localhost:99999", ":2181", "a:2181,,b:2181"])
@pytest.mark.parametrize(
    ("verb", "arguments"),
    [(up, ["-d"]), (scenario, ["run", "commit-failed"]), (zk_tree, [])],
    ids=["up", "scenario", "zk-tree"],
)
def test_what_is_no_address_of_zookeeper_is_a_wrong_use(
    tmp_path: Path, verb: click.Command, arguments: list[str], address: str
) -> None:
    """Bad input is refused before anything changes or is shown, with click's exit code of a wrong use."""
    done = CliRunner().invoke(verb, [*arguments, "--zookeeper", address])
    assert done.exit_code == 2
    assert "is no ZooKeeper address: host:port" in done.stderr
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1:port", "127.0.0.1:65536", ":19079", "h:" + "9" * 5000])
@pytest.mark.parametrize(
    ("verb", "option"), [(up, ["-d", "--control"]), (control, ["--listen"])], ids=["up", "control"]
)
def test_what_is_no_address_of_the_control_interface_is_a_wrong_use(
    tmp_path: Path, verb: click.Command, option: list[str], address: str
) -> None:
    """Bad input is refused before anything changes, with click's exit code of a wrong use (docs/command-line.md)."""
    done = CliRunner().invoke(verb, [*option, address])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "is no address: write HOST:PORT, or PORT for 127.0.0.1" in done.stderr
    assert not list(tmp_path.iterdir())


class NoListener:
    """Stands in for a socket that listens."""

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 1

    def close(self) -> None:
        pass


def test_a_control_interface_whose_cluster_does_not_respond_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was the traceback of the server's library, and exit code 3."""

    async def start(_: Control) -> None:
        raise TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, "no broker responds")

    cluster_of(1, tmp_path / "tidegauge-data")
    monkeypatch.setattr(Control, "start", start)
    monkeypatch.setattr("tidegauge_lab.control.server.listen", lambda _host, _port: NoListener())
    done = CliRunner().invoke(control, [])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "BROKER_NOT_AVAILABLE (8): no broker responds\n"


@pytest.mark.parametrize(
    ("verb", "arguments"), [(control, ["--listen", "9092"]), (watch, ["--port", "9092"])], ids=["control", "watch"]
)
def test_a_port_of_a_cluster_is_refused_to_other_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: click.Command, arguments: list[str]
) -> None:
    """Free while its broker is down, which could then not come back (``Reservations``)."""
    cluster_of(1, tmp_path / "tidegauge-data")
    monkeypatch.setattr(Reservations, "owned", lambda _: frozenset({9092}))
    monkeypatch.setattr("tidegauge_lab.control.server.listen", lambda _host, _port: pytest.fail("it listens"))
    monkeypatch.setattr("tidegauge_lab.watch.server.listen", lambda _port: pytest.fail("it listens"))
    done = CliRunner().invoke(verb, arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "port 9092 belongs to a cluster" in done.stderr


@pytest.mark.parametrize(("verb", "arguments"), [(status, []), (kill, ["1"])])
def test_a_verb_without_a_bootstrap_option_does_not_advise_it(verb: object, arguments: list[str]) -> None:
    done = CliRunner().invoke(verb, arguments)  # type: ignore[arg-type]
    assert done.exit_code == 1
    assert "bootstrap-server" not in done.stderr
    assert "`tidegauge up -d`" in done.stderr
    assert "--dir" in done.stderr


def test_a_broker_id_that_is_none_is_called_so() -> None:
    done = CliRunner().invoke(kill, ["x"])
    assert done.exit_code == 2
    assert "'x' names no broker: an ID, controller, leader-of:T-P, follower-of:T-P, " in done.stderr
    done = CliRunner().invoke(kill, ["99999999999"])
    assert done.exit_code == 2
    assert "'99999999999' is no broker ID: IDs are 0, 1, 2, ...; `tidegauge status` lists them" in done.stderr


def test_zookeeper_may_be_named_in_the_place_of_a_broker(tmp_path: Path) -> None:
    """A target's word means the same on the command line, over HTTP and in a scenario."""
    done = CliRunner().invoke(kill, ["zookeeper", "--dir", str(tmp_path)])
    assert done.exit_code == 1
    assert "there is no cluster" in done.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("NOT_ENOUGH_REPLICA", "did you mean NOT_ENOUGH_REPLICAS"),
        ("epoch", "did you mean "),
        ("BAR", ", such as NOT_ENOUGH_REPLICAS."),
    ],
)
def test_an_unknown_error_gets_suggestions_in_kafkas_spelling(name: str, words: str) -> None:
    done = CliRunner().invoke(inject_error, ["1", "--rpc", "Produce", "--error", name])
    assert done.exit_code == 2
    assert words in done.stderr
    assert len(done.stderr) < 500, "not all names in one line"


def test_a_port_is_only_for_the_clusters_own_zookeeper() -> None:
    done = CliRunner().invoke(up, ["--zookeeper", "127.0.0.1:2181", "--zookeeper-port", "2182"])
    assert done.exit_code == 2
    assert "--zookeeper-port" in done.stderr


def test_an_empty_name_of_a_directory_does_not_mean_the_working_directory() -> None:
    """``up --dir "$NOT_SET"`` would fill the working directory with brokers; the option is the same in all verbs."""
    result = CliRunner().invoke(status, ["--dir", ""])
    assert (result.exit_code, "the name of the directory is empty" in result.stderr) == (2, True)


def test_a_fault_that_lacks_a_parameter_is_named_as_the_verb_is() -> None:
    """The lab declares ``inject_error``; on the command line there is only ``inject-error``."""
    result = CliRunner().invoke(inject_error, ["0"])
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, "Error: inject-error needs --rpc.")


def test_a_fenced_broker_says_so_while_its_process_runs() -> None:
    """KIP-631: it leads nothing, though its process is up. ``null``: ZooKeeper mode, or no controller responds."""

    def line(state: str, *, fenced: bool | None) -> str:
        broker = {"id": 1, "address": "h:1", "state": state, "pid": 7, "responds": True, "fenced": fenced, "end": None}
        known = {"zookeeper": None, "controllers": [], "controller": {"broker": 3000}, "brokers": [broker]}
        known |= {"kafka_brokers": [], "kafka_bootstrap_servers": "", "control": ""}
        cluster = SimpleNamespace(directory="d", logs="l")
        return summary(cast("Any", cluster), known)[0]

    assert line("up", fenced=True) == "Broker 1   h:1  up (process 7)  fenced"
    assert line("paused", fenced=True).endswith("(process 7)  fenced")
    assert [line("up", fenced=False), line("up", fenced=None)] == ["Broker 1   h:1  up (process 7)"] * 2
    assert "fenced" not in line("down", fenced=True)
