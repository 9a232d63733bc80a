"""Options, fixtures and hooks; entry point ``pytest11``. See docs/guide/pytest.md for how it is used.

Rules:
    1. Being installed costs a test session nothing: this module and its options import pytest and the standard library
       only; the rest comes with the first use of ``tidegauge_cluster``.
    2. One cluster for a session, and for each worker under xdist, in the session's temporary directory, on ports that
       are free. It is taken down at the end: SIGTERM, by which CI and ``timeout`` end a session, means the same as
       Ctrl-C. Where the process that runs the tests ends without that, by SIGKILL for example, a guard ends the
       cluster's processes (``tidegauge_lab.local.guard``).
    3. Each test that uses the cluster finds it whole, whatever the one before did to it; also a test that does not name
       the fixture and gets it by ``request.getfixturevalue``.
    4. A test that fails gets what the cluster was and did into its report, and the cluster's logs stay.
"""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tidegauge_lab.pytest_plugin.options import TidegaugeOptions

if TYPE_CHECKING:
    from tidegauge_lab.pytest_plugin.cluster import Cluster

GROUP = "tidegauge"
CLUSTER_FIXTURE = "tidegauge_cluster"
TOPIC_MARKER = "tidegauge_topic"
CLUSTER: pytest.StashKey[Cluster] = pytest.StashKey()
BEGAN_MS: pytest.StashKey[int] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings of ini and command line; the command line wins, key by key."""
    group = parser.getgroup(GROUP, "a Tidegauge cluster for tests")
    group.addoption("--tidegauge-brokers", type=int, metavar="N", help="How many (ini: tidegauge_brokers, 3).")
    group.addoption("--tidegauge-profile", metavar="fast|kafka", help="Its timeouts (ini: tidegauge_profile, fast).")
    group.addoption(
        "--tidegauge-set", action="append", default=[], metavar="K=V", help="Broker setting (ini: tidegauge_settings)."
    )
    group.addoption("--tidegauge-zookeeper", metavar="H:P", help="Use this ZooKeeper (ini: tidegauge_zookeeper).")
    group.addoption(
        "--tidegauge-mode",
        metavar="zookeeper|kraft",
        help="Where its metadata are (ini: tidegauge_mode; TIDEGAUGE_MODE; zookeeper).",
    )
    group.addoption(
        "--tidegauge-keep", action="store_true", help="Leave the cluster's directory for a look afterwards."
    )
    parser.addini("tidegauge_brokers", "Brokers of the cluster.", default="3")
    parser.addini("tidegauge_profile", "Its timeouts: fast or kafka.", default="fast")
    parser.addini("tidegauge_settings", "Settings of all brokers, one K=V a line.", type="linelist", default=[])
    parser.addini("tidegauge_mode", "Its mode: zookeeper, or kraft, which needs no Java; TIDEGAUGE_MODE.", default="")
    parser.addini("tidegauge_zookeeper", "host:port of a ZooKeeper that runs already.", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        f"{TOPIC_MARKER}(partitions=1, replication_factor=None, configs={{}}): what the fixture {TOPIC_MARKER} creates",
    )


def read_settings(lines: list[str]) -> dict[str, str]:
    """``K=V`` lines as a table.

    Raises:
        pytest.UsageError: a line is not of that form.
    """
    settings = {}
    for line in lines:
        key, separator, value = line.partition("=")
        if not separator or not key.strip():
            raise pytest.UsageError(f"Tidegauge's settings are written K=V, not {line!r}")
        settings[key.strip()] = value.strip()
    return settings


def read_options(config: pytest.Config) -> TidegaugeOptions:
    """Read the settings of ini and command line.

    Raises:
        pytest.UsageError: something is malformed.
    """
    brokers = config.getoption("--tidegauge-brokers")
    if brokers is None:
        text = str(config.getini("tidegauge_brokers"))
        if not text.isascii() or not text.isdigit():
            raise pytest.UsageError(f"tidegauge_brokers is a number, not {text!r}")
        brokers = int(text)
    return TidegaugeOptions(
        brokers=brokers,
        profile=config.getoption("--tidegauge-profile") or config.getini("tidegauge_profile"),
        settings=read_settings([*config.getini("tidegauge_settings"), *(config.getoption("--tidegauge-set") or [])]),
        zookeeper=config.getoption("--tidegauge-zookeeper") or config.getini("tidegauge_zookeeper") or None,
        keep=bool(config.getoption("--tidegauge-keep")),
        mode=_mode(config),
    )


def _mode(config: pytest.Config) -> str:
    mode = str(config.getoption("--tidegauge-mode") or config.getini("tidegauge_mode"))
    if mode not in {"", "zookeeper", "kraft"}:
        raise pytest.UsageError(f"tidegauge_mode is zookeeper or kraft, not {mode!r}")
    return mode


# Fixtures


@pytest.fixture(scope="session")
def tidegauge_options(pytestconfig: pytest.Config) -> TidegaugeOptions:
    """Return the options of the session's cluster; override it in conftest.py."""
    return read_options(pytestconfig)


@pytest.fixture(scope="session")
def tidegauge_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tidegauge_options: TidegaugeOptions
) -> Iterator[Cluster]:
    """Provide the session's cluster, healthy at the start of each test; ``.aio`` has the same for asyncio."""
    from tidegauge.errors import TidegaugeError  # noqa: PLC0415 - rule 1
    from tidegauge_lab.pytest_plugin.cluster import Cluster  # noqa: PLC0415 - rule 1

    with ended_by_sigterm():
        try:
            cluster = Cluster.launch(tmp_path_factory.mktemp("tidegauge") / "cluster", tidegauge_options)
        except TidegaugeError as problem:
            failure = pytest.fail.Exception(f"the Tidegauge cluster does not start: {problem.message}", pytrace=False)
            raise failure from None  # else pytest prints the problem, too, and so its message twice
        request.config.stash[CLUSTER] = cluster
        try:
            yield cluster
        finally:
            del request.config.stash[CLUSTER]
            cluster.close(keep=tidegauge_options.keep)


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the session as Ctrl-C does, unless something else handles it; only the main thread can."""
    is_free = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not is_free or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the cluster is being taken down
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.fixture
def tidegauge_topic(request: pytest.FixtureRequest, tidegauge_cluster: Cluster) -> str:
    """Provide a topic for the test, with a leader for each partition; the marker of the same name says what kind."""
    marker = request.node.get_closest_marker(TOPIC_MARKER)
    wanted: dict[str, Any] = {} if marker is None else dict(marker.kwargs)
    return tidegauge_cluster.create_topic(topic_name(request.node.name), **wanted)


def topic_name(test_name: str) -> str:
    """Return a legal name for a test's topic; ``create_topic`` makes it unique."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", test_name).strip("-")[:100] or "topic"


# Hooks


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Rule 3: a test that names the fixture finds the cluster whole; another one does when it first uses it."""
    item.stash[BEGAN_MS] = time.time_ns() // 1_000_000
    cluster = item.config.stash.get(CLUSTER, None)
    if cluster is not None:
        cluster.begin_test()
        if CLUSTER_FIXTURE in getattr(item, "fixturenames", ()):
            cluster.use()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Rule 4."""
    report = yield
    cluster = item.config.stash.get(CLUSTER, None)
    if cluster is not None and cluster.is_used and report.failed:
        cluster.keeps_logs = True
        from tidegauge_lab.pytest_plugin.evidence import sections  # noqa: PLC0415 - rule 1

        report.sections += sections(cluster, item.stash.get(BEGAN_MS, 0))
    return report
