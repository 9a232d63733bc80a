"""A ZooKeeper and a cluster for the whole session, clusters of one's own, and the check that nothing is left running.

- ``zookeeper``: ``host:port`` of a real ZooKeeper; use a chroot of your own (``f"{zookeeper}/my-test"``).
- ``cluster``: a ``LocalCluster`` of three brokers that are up (profile fast). A file's tests share it: make topics of
  your own, and bring back what you kill; each use waits until all brokers are up and ready again.
- ``kraft_cluster``: the same in KRaft mode.
- ``brokers``: three brokers for one file, with the broker settings in its ``SETTINGS``; ``lab``: their switches, with
  everything ended and all brokers up after each test.
- ``make_cluster``: makes clusters of a test's own, on that ZooKeeper unless ``zookeeper=None`` is given, and takes them
  down afterwards.
- ``make_mixed``: likewise, with Apache Kafka's brokers on some of the ids; ``mixed``: three brokers, of which one is
  Apache Kafka's, or two.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.labs import resume_all
from tests.modes import IS_KRAFT
from tools.mode_files import ZOOKEEPER_ALONE

from tidegauge_client.cluster_file import KRAFT_MODE, ZOOKEEPER_MODE, ClusterFile
from tidegauge_lab.local import launcher, layout, takedown
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.ports import Reservations, is_free, shared_directory
from tidegauge_lab.local.processes import ProcessState, living_children
from tidegauge_lab.local.topology import topology_of
from tidegauge_lab.local.topology.kraft_plan import LAB_PORTS_ABOVE
from tidegauge_lab.local.waiting import holds_within
from tidegauge_lab.local.wanted import WantedQuorum
from tidegauge_lab.switches import Switches

if TYPE_CHECKING:
    from tests.integration.mixed_cluster import MixedCluster

os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
"""For Spark's drivers, which live too short for a second compiler to pay."""
MakeCluster = Callable[..., LocalCluster]
MakeMixed = Callable[..., "MixedCluster"]

LIMIT_SECONDS = 150
"""For a cluster to be ready, on a machine that does much else."""
AMONG_BROKERS: dict[str, str] = (
    {"inter.broker.listener.name": "PLAINTEXT"} if os.environ.get("TIDEGAUGE_TEST_AMONG_BROKERS") == "KAFKA" else {}
)
"""With TIDEGAUGE_TEST_AMONG_BROKERS=KAFKA brokers speak Kafka's protocol among themselves, in every test that says
nothing else: ``test_brokers_over_kafka`` runs files of tests so."""
WORKERS = 4
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
# Sixteen ports at a time, below the range from which the system gives ports to outgoing connections, and away from
# a user's cluster. Workers of one run take turns, so that a stopped broker's port stays its own.
# Runs with neighbouring process numbers begin far from each other.
_PORTS = (20_000 + (_run * WORKERS * 61 + turn) * 16 % 12_000 for turn in itertools.count(_worker % WORKERS, WORKERS))
_names = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out, in KRaft mode, the tests and the files of what is in ZooKeeper mode alone."""
    for item in items if IS_KRAFT else ():
        mark = item.get_closest_marker("zookeeper_mode")
        why = ZOOKEEPER_ALONE.get(item.path.stem) if mark is None else mark.args[0]
        if why is not None:
            item.add_marker(pytest.mark.skip(reason=f"ZooKeeper mode: {why}"))


def free_base_port(count: int = 8) -> int:
    """The first of some free ports in a row, given to no other caller, in this run or in another one, while this one
    lasts.

    A broker that was killed leaves its port free for seconds; so a port is his who has locked its file, bound or not,
    and a cluster's that began elsewhere.
    """
    for base in itertools.islice(_PORTS, 1_000):
        ports = range(base, base + count)
        if _locked(base) and all(map(is_free, ports)) and Reservations().owned().isdisjoint(ports):
            return base
    raise AssertionError("no sixteen ports in a row are free")


def free_quorum_port(count: int = 8) -> int:
    """Return the first of some free ports in a row for a quorum's controllers, given to no other caller likewise.

    Their labs listen 10,000 above, which must be below the range of outgoing connections, too: a controller that was
    killed would find its lab's port taken. Ports 12,100 to 18,999 are away from those of a user's cluster.
    """
    while True:
        first = free_base_port(count) - LAB_PORTS_ABOVE
        if first in range(12_100, 19_000) and all(map(is_free, range(first, first + count))):
            return first


def _locked(base: int) -> bool:
    """Lock the file of these ports until this process ends; False when another process has it."""
    directory = shared_directory() / f"tidegauge-test-ports-{os.getuid()}"
    directory.mkdir(exist_ok=True)
    descriptor = os.open(directory / str(base), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    return True


@pytest.fixture(scope="session")
def next_base_port() -> Callable[[], int]:
    """For a cluster that a test file makes itself, to share it among its tests."""
    return free_base_port


@pytest.fixture(scope="session", autouse=True)
def nothing_stays_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fails the session's last test when a process lives on that was started for a directory of this session."""
    base = tmp_path_factory.getbasetemp()
    yield
    # A Java process that has ended can be reaped only when the last of its threads has ended, some ms later.
    holds_within(lambda: not living_children(), 5.0)
    left = {pid: command_of(pid) for pid in living_children()} | processes_of_directory(base)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, f"still running after the tests, killed now: {left}"


def command_of(pid: int) -> str:
    """A process's command line, as far as it can be read."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return "a child"


def processes_of_directory(directory: Path) -> dict[int, str]:
    """Living processes whose command line names something in this directory, by pid."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if f"{directory}/" in command:
                    found[int(entry.name)] = command.strip()
    return found


@pytest.fixture(scope="session", autouse=True)
def launcher_of_brokers(nothing_stays_behind: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Load brokers' modules once for all clusters of this process."""
    with launcher.kept(tmp_path_factory.getbasetemp()):
        yield


@pytest.fixture(scope="session")
def zookeeper(nothing_stays_behind: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("zookeeper")
    file = ClusterFile(f"127.0.0.1:{free_base_port()}", zookeeper_managed=True, profile="fast", brokers=[])
    (directory / layout.LOGS).mkdir()
    process = layout.zookeeper_process(directory)
    topology_of(directory, file).start([layout.ZOOKEEPER])
    yield file.zookeeper_address
    takedown.end([process])


def metadata_at(zookeeper: str, chroot: str) -> dict[str, Any]:
    """Where a new cluster has its metadata: in a chroot of that ZooKeeper, or in a quorum of its own (``MODE``)."""
    return own_metadata() if IS_KRAFT else {"zookeeper": f"{zookeeper}/{chroot}"}


def own_metadata() -> dict[str, Any]:
    """A ZooKeeper or a quorum that is a new cluster's alone."""
    return own_quorum() if IS_KRAFT else {"mode": ZOOKEEPER_MODE}


def own_quorum() -> dict[str, Any]:
    """Three controllers that are a new cluster's alone."""
    return {"mode": KRAFT_MODE, "quorum": WantedQuorum(port=free_quorum_port())}


@contextlib.contextmanager
def kraft_cluster_at(directory: Path, base_port: int, **options: Any) -> Iterator[LocalCluster]:
    """A new cluster with a quorum of its own that runs inside the block, with these options of ``create``."""
    made = LocalCluster.create(directory, base_port=base_port, **(own_quorum() | options))
    try:
        made.up()
        yield made
    finally:
        made.down(grace_seconds=0)


@contextlib.contextmanager
def of_a_file(
    metadata: dict[str, Any], tmp_path_factory: pytest.TempPathFactory, settings: dict[str, str]
) -> Iterator[LocalCluster]:
    """Three brokers that the tests of one file share, with their metadata there.

    Leadership moves only when a test moves it: by itself it would go back to the preferred replica 5 s after a failover
    of the controller (KafkaController.onControllerFailover), wherever a test is by then.
    """
    settings = {"auto.leader.rebalance.enable": "false"} | AMONG_BROKERS | settings
    made = LocalCluster.create(
        tmp_path_factory.mktemp("cluster"),
        3,
        **metadata,
        base_port=free_base_port(),
        settings=settings,
    )
    made.up(LIMIT_SECONDS)
    yield made
    made.down(grace_seconds=0)


@pytest.fixture(scope="module")
def _module_cluster(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with of_a_file(metadata_at(zookeeper, f"shared-{next(_names)}"), tmp_path_factory, {}) as made:
        yield made


@pytest.fixture(scope="module")
def brokers(
    request: pytest.FixtureRequest, zookeeper: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    metadata = metadata_at(zookeeper, f"shared-{next(_names)}")
    with of_a_file(metadata, tmp_path_factory, request.module.SETTINGS) as made:
        yield made


@pytest.fixture(scope="module")
def _module_kraft_cluster(
    nothing_stays_behind: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    with of_a_file(own_quorum(), tmp_path_factory, {}) as made:
        yield made


@pytest.fixture
async def lab(brokers: LocalCluster) -> AsyncIterator[Switches]:
    """A fault left in force would keep a broker from readiness, so faults end first, and again once all are up."""
    ids = [broker.id for broker in brokers.file.brokers]
    async with Switches.of_cluster(brokers.file) as switches:
        yield switches
    resume_all(brokers)
    await clear_faults(brokers, (one for one in ids if brokers.state_of(one) is ProcessState.UP))
    brokers.up(LIMIT_SECONDS)
    await clear_faults(brokers, ids)
    brokers.wait_ready(LIMIT_SECONDS)


@pytest.fixture
def cluster(_module_cluster: LocalCluster) -> LocalCluster:
    """The shared cluster, healthy again whatever an earlier test left."""
    return _healthy(_module_cluster)


@pytest.fixture
def kraft_cluster(_module_kraft_cluster: LocalCluster) -> LocalCluster:
    """The file's cluster in KRaft mode, healthy likewise."""
    return _healthy(_module_kraft_cluster)


def _healthy(cluster: LocalCluster) -> LocalCluster:
    resume_all(cluster)
    ids = [broker.id for broker in cluster.file.brokers]
    up = [broker_id for broker_id in ids if cluster.state_of(broker_id) is ProcessState.UP]
    with ThreadPoolExecutor(1) as pool:  # its own thread, so its own event loop
        pool.submit(asyncio.run, clear_faults(cluster, up)).result()
    cluster.up(LIMIT_SECONDS)
    return cluster


async def clear_faults(cluster: LocalCluster, broker_ids: Iterable[int]) -> None:
    """A fault that a failed test left in force would keep every later one waiting."""
    async with Switches.of_cluster(cluster.file) as switches:
        for broker_id in broker_ids:
            await switches.clear(broker_id, holds=True)


@pytest.fixture
def make_cluster(zookeeper: str, tmp_path: Path) -> Iterator[MakeCluster]:
    made: list[LocalCluster] = []

    def make(*, up: bool = True, **wanted: Any) -> LocalCluster:
        name = f"cluster-{next(_names)}"
        if "zookeeper" in wanted and wanted["zookeeper"] is None:
            wanted |= own_metadata()
        elif not {"zookeeper", "mode"} & set(wanted):
            wanted |= metadata_at(zookeeper, name)
        wanted.setdefault("base_port", free_base_port())
        wanted["settings"] = AMONG_BROKERS | dict(wanted.get("settings") or {})
        cluster = LocalCluster.create(tmp_path / name, **wanted)
        made.append(cluster)
        if up:
            cluster.up(LIMIT_SECONDS)
        return cluster

    yield make
    for cluster in made:
        if (cluster.directory / "cluster.json").exists():
            cluster.down(grace_seconds=0)


@pytest.fixture
def make_mixed(make_cluster: MakeCluster, tmp_path: Path) -> Iterator[MakeMixed]:
    pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")
    from tests.integration.apache_kafka import Unavailable  # noqa: PLC0415 - after the check that it is there
    from tests.integration.mixed_cluster import MixedCluster  # noqa: PLC0415 - the same

    made: list[MixedCluster] = []

    def make(kafkas: Iterable[int], size: int = 3) -> MixedCluster:
        try:
            mixed = MixedCluster(make_cluster, free_base_port(), tmp_path / f"kafka-{len(made)}", kafkas, size)
        except Unavailable as problem:
            pytest.skip(f"Apache Kafka can't be had here: {problem}")
        made.append(mixed)
        mixed.start(*mixed.ids)
        return mixed

    yield make
    for mixed in made:
        mixed.end()


@pytest.fixture(params=[(2,), (1, 2)], ids=["one-kafka", "two-kafka"])
def mixed(request: pytest.FixtureRequest, make_mixed: MakeMixed) -> MixedCluster:
    return make_mixed(request.param)
