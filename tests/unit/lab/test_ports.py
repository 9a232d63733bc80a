"""Ports of a cluster: 19092+id and 12181, or the next free ones; a fixed one that is busy is refused."""

from __future__ import annotations

import errno
import json
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.errors import TidegaugeError
from tidegauge_lab.local import ports
from tidegauge_lab.local.cluster import LocalCluster

WANTED = [19092, 19093, 19094]


def free_but(*busy: int):
    return lambda port: port not in busy


@pytest.mark.parametrize(
    ("busy", "chosen"),
    [
        ((), [19092, 19093, 19094]),
        ((19092,), [19093, 19094, 19095]),
        ((19093,), [19092, 19094, 19095]),
        ((19092, 19093, 19094), [19095, 19096, 19097]),
    ],
)
def test_a_busy_port_is_replaced_by_the_next_free_one(busy: tuple[int, ...], chosen: list[int]) -> None:
    assert ports.choose_ports(WANTED, free=free_but(*busy)) == chosen


@settings(max_examples=100)
@given(st.sets(st.integers(19085, 19110)), st.integers(1, 8))
def test_chosen_ports_are_free_distinct_rising_and_none_is_skipped_without_reason(busy: set[int], brokers: int) -> None:
    chosen = ports.choose_ports([19092 + broker for broker in range(brokers)], free=free_but(*busy))
    assert len(chosen) == brokers
    assert chosen == sorted(set(chosen))
    assert not busy & set(chosen)
    assert all(port in busy or port in chosen for port in range(19092, chosen[-1]))


def test_a_port_of_the_plan_itself_is_not_chosen_twice() -> None:
    assert ports.choose_ports([12181], taken={12181}, free=free_but()) == [12182]


def test_no_free_port_is_an_error_not_an_endless_search() -> None:
    with pytest.raises(TidegaugeError, match="no free port from 65000"):
        ports.choose_ports([65000], free=lambda _: False)


def test_a_fixed_port_that_is_busy_is_refused_with_its_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_listening_inodes", lambda *_: {"111"})
    monkeypatch.setattr(ports, "_pid_with", lambda _: 4711)
    monkeypatch.setattr(ports, "_command_of", lambda _: "nginx -g daemon")
    with pytest.raises(TidegaugeError, match=r"port 19092 of broker 0 is in use by nginx -g daemon \(process 4711\)"):
        ports.require_free(19092, "broker 0", free=lambda _: False)
    ports.require_free(19092, "broker 0", free=lambda _: True)


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_that_cannot_be_is_refused(port: int) -> None:
    with pytest.raises(TidegaugeError, match="not between 1 and 65535"):
        ports.require_free(port, "broker 0", free=lambda _: True)


def test_only_listening_sockets_of_the_port_count() -> None:
    """19092 is 4A94; state 0A listens, 01 is a connection, 06 lingers."""
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:4A94 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 0\n"
        "   1: 0100007F:4A94 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 222 1 0\n"
        "   2: 0100007F:4A95 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 333 1 0\n"
        "   3: 0100007F:4A94 0100007F:9999 06 00000000:00000000 00:00000000 00000000     0        0 0 1 0\n"
    )
    assert ports.listening_inodes(table, 19092) == {"111"}


def test_a_long_command_line_keeps_its_program_and_its_end() -> None:
    text = "/usr/bin/java " + "-Xflag " * 30 + "QuorumPeerMain /cluster/zookeeper/zoo.cfg"
    short = ports.shortened(text)
    assert short.startswith("java ... ")
    assert short.endswith("QuorumPeerMain /cluster/zookeeper/zoo.cfg")
    assert len(short) == 100
    assert ports.shortened("nginx -g daemon") == "nginx -g daemon"
    assert ports.shortened("python3 -c \nimport socket\n") == "python3 -c import socket"  # one sentence, one line


@pytest.mark.parametrize(
    "refusal",
    [
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"),
        UnicodeError("label too long"),
    ],
)
def test_a_host_on_which_no_broker_can_listen_is_refused_with_its_option(refusal: OSError | UnicodeError) -> None:
    """It is refused before a cluster has recorded it: every later ``up`` would fail by it."""

    def listen(_: str) -> None:
        raise refusal

    with pytest.raises(
        TidegaugeError, match=r"can't listen on --kafka-host 'odd': .*; give an address of this machine"
    ):
        ports.require_host("odd", option="--kafka-host", listen=listen)
    ports.require_host("127.0.0.1", option="--kafka-host", listen=lambda _: None)


class Directories:
    """Directories of clusters, of which some run, and the file of reservations that they share."""

    def __init__(self, parent: Path, *names: str) -> None:
        self.running: set[Path] = set()
        self.now_seconds = 0.0
        self.file = parent / "reservations.json"
        self.paths = [parent / name for name in names]
        for path in self.paths:
            path.mkdir()

    @property
    def reservations(self) -> ports.Reservations:
        return ports.Reservations(self.file, lambda: self.now_seconds, lambda directory: directory in self.running)


def test_a_cluster_that_comes_back_takes_no_port_of_one_that_runs(tmp_path: Path) -> None:
    """Two directories have recorded the same ports: the one that runs keeps them, also while its broker is dead."""
    directories = Directories(tmp_path, "runs", "comes-back", "new")
    runs, comes_back, new = directories.paths
    directories.reservations.hold(runs, [9092, 9093])
    directories.running.add(runs)
    with directories.reservations.choosing(comes_back) as reserved:
        reserved.chosen.extend([9092, 9093, 9094])
    with pytest.raises(TidegaugeError, match=f"port 9092 is in use by the cluster in {runs}, which runs"):
        directories.reservations.hold(comes_back, [9092, 9093, 9094])
    directories.reservations.release(comes_back)
    with directories.reservations.choosing(new) as reserved:
        assert reserved.others == {9092, 9093}


def test_ports_of_a_cluster_that_no_longer_runs_can_be_taken(tmp_path: Path) -> None:
    """Its reservation lasts a minute from when it last ran, against first ``up``s alone; then they are the other's."""
    directories = Directories(tmp_path, "ended", "comes-back")
    ended, comes_back = directories.paths
    directories.reservations.hold(ended, [9092, 9093])
    directories.reservations.hold(comes_back, [9092])
    directories.running.add(comes_back)
    assert directories.reservations.owned() == {9092, 9093}
    directories.now_seconds = 61.0
    assert directories.reservations.owned() == {9092}


def test_a_writer_of_reservations_that_is_killed_loses_none(tmp_path: Path) -> None:
    """It writes over the old entries first, and then shortens the file."""
    directories = Directories(tmp_path, "one", "other")
    one, other = directories.paths
    directories.reservations.hold(other, list(range(20000, 20010)))
    old = directories.file.read_text()
    new = json.dumps({"9092": [str(one), 0.0]})
    directories.file.write_text(new + old[len(new) :])
    assert directories.reservations.owned() == {9092}


@pytest.mark.parametrize(
    ("state", "holder"),
    [
        ("01", "a socket that does not listen, such as the end of a connection that a process has opened"),
        ("0A", "a process that this user may not look at"),
    ],
)
def test_a_port_on_which_no_process_listens_has_no_process_to_end(tmp_path: Path, state: str, holder: str) -> None:
    """The system gives ports from 32768 on to connections that are opened. Another user's process can't be named."""
    table = tmp_path / "tcp"
    row = f"   0: 0100007F:9A44 0100007F:1F90 {state} 00000000:00000000 00:00000000 00000000     0        0 0 1 0\n"
    table.write_text(f"  sl  local_address rem_address   st ...\n{row}")
    assert ports.holder_of(0x9A44, [table]) == holder


def test_an_up_that_is_refused_for_a_reserved_port_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker there is down, so its port is free, and comes back to it. Other ports are not refused afterwards."""
    directories = Directories(tmp_path, "runs")
    [runs] = directories.paths
    directories.running.add(runs)
    directories.reservations.hold(runs, [29092])
    reservations = directories.reservations
    monkeypatch.setattr(ports, "Reservations", lambda: reservations)
    new = tmp_path / "new"
    refused = f"port 29092 is in use by the cluster in {runs}, which runs; .* --kafka-port"
    for _ in range(2):
        with pytest.raises(TidegaugeError, match=refused):
            LocalCluster.create(new, 1, kafka_port=29092, zookeeper="127.0.0.1:1")
        assert not new.exists()


def test_reservations_are_of_one_network_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same port of another namespace is another port."""
    monkeypatch.setattr(ports, "shared_directory", lambda: tmp_path)
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    ports.Reservations().hold(cluster, [29092])
    assert ports.Reservations().owned() == {29092}
    if Path("/proc/self/ns/net").exists():
        assert ports._network_namespace() == f"-{Path('/proc/self/ns/net').stat().st_ino}"
    monkeypatch.setattr(ports, "_network_namespace", lambda: "-1")
    assert ports.Reservations().owned() == set()


def test_a_file_of_reservations_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """It lies in /tmp, where every user may write."""
    precious, link = tmp_path / "precious", tmp_path / "reservations.json"
    precious.write_text("precious")
    link.symlink_to(precious)
    with pytest.raises(TidegaugeError, match=r"can't be used: .*; remove it"):
        ports.Reservations(link).hold(tmp_path, [29092])
    assert precious.read_text() == "precious"


@settings(max_examples=100)
@given(
    st.one_of(
        st.text(max_size=40),
        st.dictionaries(st.text(max_size=6), st.tuples(st.text(max_size=20), st.floats())).map(json.dumps),
        st.dictionaries(st.integers(0, 2**70).map(str), st.lists(st.integers() | st.text(max_size=9))).map(json.dumps),
        st.sampled_from(["[" * 100_000, '{"1": ["\\u0000", 1e999]}', '{"1": ["' + "a" * 5000 + '", 0]}']),
    )
)
def test_any_text_of_reservations_is_read(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "any-reservations.json"
    file.write_text(text, encoding="utf-8", errors="replace")
    assert ports.Reservations(file).owned() == set()
