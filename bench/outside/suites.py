"""The suites: where each comes from, the cluster that it expects, how it is run, and the place of its results."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fetched import Unavailable
from jars import KAFKA as KAFKA_VERSION
from jars import KAFKA_4

from outside import kafka_suites, kafka_tools, packages
from outside.proxies import toxiproxy
from outside.results import TIDEGAUGE, Result, from_go, from_junit, from_librdkafka
from outside.sides import Shape

HERE = Path(__file__).parent
CHECKOUTS = "OUTSIDE_CHECKOUTS"
"""The environment variable that names a directory with checkouts of repositories: releases on PyPI have no tests."""
TEST_LIMIT_SECONDS = 180
"""Of one test of a pytest suite; on a quiet machine none takes a minute."""


@dataclass(frozen=True, slots=True)
class Task:
    """One run of a suite.

    Attributes:
        prepared: the directory that ``Suite.prepare`` returned.
        servers: the brokers' addresses.
        tests: the tests to run, by their names in the results; all if it is empty.
        directory: for reports and logs.
        limit_seconds: after which the run is ended; tests still running have failed.
        proxies: the address that steers the proxies in front of the brokers.
        side: whose cluster it is.
    """

    prepared: Path
    servers: Sequence[str]
    tests: Sequence[str]
    directory: Path
    limit_seconds: float
    proxies: str = ""
    side: str = TIDEGAUGE

    def run(self, command: Sequence[str], where: Path, environment: Mapping[str, str]) -> str:
        """Run a command in a process group of its own; return what it printed, also when it fails or is out of time."""
        log = self.directory / "output.txt"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=where,
                env={**_without_ours(), **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                process.wait(self.limit_seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return log.read_text(encoding="utf-8", errors="replace")


def _without_ours() -> dict[str, str]:
    """Return the environment without what would lead a suite to Tidegauge's own packages."""
    return {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}


@dataclass(frozen=True, slots=True)
class Suite:
    """An outside suite.

    Attributes:
        name: on the command line and in docs/compatibility.md.
        title: in words.
        version: that is pinned.
        shape: the cluster that it expects.
        prepare: fetches and builds it, once; raises ``Unavailable``.
        run: runs a task and returns a result for each test.
        how: its remarks in the page: tests that are left out, and what was set.
        limit_seconds: of a run of all tests.
        classes: of tests, if each is a run of its own: a suite that was interrupted goes on with the next one.
    """

    name: str
    title: str
    version: str
    shape: Shape
    prepare: Callable[[], Path]
    run: Callable[[Task], list[Result]]
    how: str = ""
    limit_seconds: float = 3_000.0
    classes: Sequence[str] = ()


def _checkout(repository: str) -> Path:
    """Return the checkout of a repository under the directory that a variable names.

    Raises:
        Unavailable: the variable is not set, or there is no such checkout.
    """
    directory = os.environ.get(CHECKOUTS, "")
    if not directory or not (found := Path(directory).absolute() / repository).is_dir():
        raise Unavailable(f"its release has no tests; {CHECKOUTS} names a directory with a checkout {repository}")
    return found


def _python(repository: str, package: str, version: str, needs: Sequence[str]) -> Callable[[], Path]:
    """Return a function that prepares a Python package's suite and environment."""

    def prepare() -> Path:
        _checkout(repository)
        return packages.python_environment(package, version, (*_PYTEST, *needs))

    return prepare


def _pytest(
    task: Task, repository: str, tests: str, options: Sequence[str], environment: Mapping[str, str]
) -> list[Result]:
    """Run the tests of a checkout in the suite's own environment, without the package's sources beside them.

    Tests that are named are chosen by their node ids. The checkout's own settings of pytest hold.
    """
    source = task.directory / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(_checkout(repository) / tests, source / tests)
    shutil.copy(_checkout(repository) / "pyproject.toml", source)
    if (conftest := HERE / f"{repository}_conftest.py").exists():
        shutil.copy(conftest, source / tests / "conftest.py")
    report = task.directory / "report.xml"
    report.unlink(missing_ok=True)
    named = [node for test in task.tests if (node := _node(source, test))]
    command = [str(task.prepared / "venv" / "bin" / "python"), "-m", "pytest", *(named or options)]
    command += ["-p", "no:cacheprovider", "-o", "junit_family=xunit2", f"--junit-xml={report}", "-q"]
    command += ["-o", "asyncio_default_fixture_loop_scope=function"]
    command += ["--timeout", str(TEST_LIMIT_SECONDS), "--timeout-method=signal"]
    output = task.run(command, source, environment)
    if not report.exists():
        raise Unavailable(f"pytest wrote no report: {output.strip()[-300:]}")
    return from_junit(report.read_text(encoding="utf-8"))


def _node(source: Path, test: str) -> str | None:
    """Return pytest's node id of a test in a JUnit report: ``tests.test_a.TestB::test_c``."""
    place, _, name = test.partition("::")
    parts = place.split(".")
    for count in range(len(parts), 0, -1):
        file = Path(*parts[:count]).with_suffix(".py")
        if (source / file).is_file():
            return "::".join([str(file), *parts[count:], name])
    return None


def _aiokafka(task: Task) -> list[Result]:
    tests = ["tests", "--ignore=tests/test_sasl.py", "--ignore=tests/record", "-m", "not ssl"]
    environment = {"OUTSIDE_BROKER": task.servers[0], "KAFKA_VERSION": KAFKA_VERSION}
    functions = [re.sub(r"(?<=_changes)\[\d+\]$", "", test) for test in task.tests]
    found = _pytest(replace(task, tests=functions), "aiokafka", "tests", tests, environment)
    # One test has numbers among its parameters, and so in its name, that are drawn in each run.
    return [replace(one, test=re.sub(r"(_changes\[\d+)-.*\]$", r"\1]", one.test)) for one in found]


def _confluent(task: Task) -> list[Result]:
    tests = [f"tests/integration/{part}" for part in ("admin", "consumer", "producer")]
    tests += ["--deselect=tests/integration/admin/test_describe_operations.py"]
    return _pytest(task, "confluent-kafka-python", "tests", tests, {"BROKERS": ",".join(task.servers)})


def _kafka_python(task: Task) -> list[Result]:
    tests = ["test/integration", "--ignore-glob=*ssl*", "--ignore-glob=*sasl*"]
    environment = {
        "KAFKA_ROOT": str(task.directory),
        "KAFKA_VERSION": KAFKA_VERSION,
        "KAFKA_URI": f"kafka://{task.servers[0]}",
    }
    return _pytest(task, "kafka-python", "test", tests, environment)


def _go(task: Task, package: str, options: Sequence[str], environment: Mapping[str, str]) -> list[Result]:
    chosen = f"^({'|'.join(map(re.escape, task.tests))})$" if task.tests else ""
    binary = str(task.prepared / "suite.test")
    command = [packages.program("go", "Go"), "tool", "test2json", "-t", binary, "-test.v=test2json", *options]
    command += [f"-test.timeout={int(task.limit_seconds)}s", *(["-test.run", chosen] if chosen else [])]
    return from_go(task.run(command, task.prepared / "source" / package, environment))


def _franz(task: Task) -> list[Result]:
    environment = {
        "KGO_SEEDS": ",".join(task.servers),
        "KGO_TEST_RF": "3",
        "KGO_TEST_RECORDS": "20000",
        "KGO_LOG_LEVEL": "none",
    }
    return _go(task, "pkg/kgo", [], environment)


def _sarama(task: Task) -> list[Result]:
    environment = {"TOXIPROXY_ADDR": task.proxies, "KAFKA_VERSION": KAFKA_VERSION}
    if not task.tests:
        return _go(task, ".", ["-test.run", "Func"], environment)
    return _go(task, ".", [], environment)


def _prepare_sarama() -> Path:
    toxiproxy()
    return packages.go_suite("github.com/IBM/sarama", "v1.61.1", ".", "functional")


def _librdkafka(task: Task) -> list[Result]:
    tests = task.prepared / "source" / "tests"
    settings = {
        "metadata.broker.list": ",".join(task.servers),
        "test.topic.random": "true",
        "test.timeout.multiplier": "5",
    }
    (tests / "test.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    environment = {"TEST_KAFKA_VERSION": KAFKA_VERSION}
    if task.tests:
        environment["TESTS"] = ",".join(test[:4] for test in task.tests)
    # A test closes sockets that it does not own (0076), so that others fail beside it: repeated tests run alone.
    command = ["./test-runner", "-L", "-Q", "-p1" if task.tests else "-p3"]
    return from_librdkafka(task.run(command, tests, {**environment, "LD_LIBRARY_PATH": "../src:../src-cpp"}))


def _tools(task: Task) -> list[Result]:
    return list(kafka_tools.run(task.prepared, ",".join(task.servers), task.tests, len(task.servers)))


_PYTEST = ("pytest<9", "pytest-asyncio", "pytest-mock", "pytest-timeout")
_CODECS = ("lz4", "zstandard", "python-snappy", "crc32c", "xxhash", "cramjam")
_CONFLUENT = (
    "avro<2",
    "requests",
    "trivup",
    "setuptools<81",
    "fastavro",
    "jsonschema",
    "authlib",
    "httpx",
    "attrs",
    "cachetools",
    "orjson",
)
_LIBRDKAFKA_BUILD = (("./configure", "--disable-gssapi"), ("make", "libs"), ("make", "-C", "tests", "build"))

_AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
}
"""For tests that create ACLs: their clients may do everything."""
_SARAMA = {
    "default.replication.factor": "2",
    "auto.create.topics.enable": "false",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "zookeeper.session.timeout.ms": "6000",
    **{f"{number}:broker.rack": str(number + 1) for number in range(5)},
}
"""Settings of the suite's own containers."""

SUITES: Mapping[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite(
            "kafka-tools",
            "Kafka's own tools that test a cluster",
            KAFKA_VERSION,
            Shape(3),
            kafka_tools.prepare,
            _tools,
            limit_seconds=1_200.0,
        ),
        Suite(
            "aiokafka",
            "aiokafka's tests",
            "0.14.0",
            Shape(1, {"num.partitions": "2"}),
            _python("aiokafka", "aiokafka", "0.14.0", _CODECS),
            _aiokafka,
            "Without tests of SASL and TLS, and of the record codecs, which need no broker. The suite's "
            "conftest.py starts brokers in Docker; bench/outside/aiokafka_conftest.py stands in for it.",
        ),
        Suite(
            "kafka-python",
            "kafka-python's integration tests",
            "3.0.11",
            Shape(1, {**_AUTHORIZER, "num.partitions": "2", "group.min.session.timeout.ms": "1000"}),
            _python("kafka-python", "kafka-python", "3.0.11", _CODECS),
            _kafka_python,
            "Without tests of SASL and TLS. The tests come from the tag 3.0.11.",
        ),
        Suite(
            "confluent-kafka",
            "confluent-kafka-python's integration tests",
            "2.16.1",
            Shape(3, {**_AUTHORIZER, "num.partitions": "4"}),
            _python("confluent-kafka-python", "confluent-kafka", "2.16.1", _CONFLUENT),
            _confluent,
            "Without `test_describe_operations.py`, which starts a cluster of its own with SASL, and the tests of "
            "the schema registry. The tests come from 2.15.0.",
        ),
        Suite(
            "franz-go",
            "franz-go's tests of the package kgo",
            "v1.22.2",
            Shape(3, {"num.partitions": "4", "default.replication.factor": "3"}),
            lambda: packages.go_suite("github.com/twmb/franz-go", "v1.22.2", "./pkg/kgo"),
            _franz,
            "With 20,000 records for each chain of groups in place of 500,000.",
        ),
        Suite(
            "sarama",
            "sarama's functional tests",
            "v1.61.1",
            Shape(5, _SARAMA, {f"kafka{number}": 29_090 + number for number in (5, 1, 2, 3, 4)}),
            _prepare_sarama,
            _sarama,
            "Five brokers in five racks behind toxiproxy, as the suite's own containers have them, but for the ids, "
            "0 to 4 in place of 1 to 5. Tests that stop a container, or run a program in it, can't pass.",
        ),
        Suite(
            "librdkafka",
            "librdkafka's test-runner",
            "2.0.2-1 of Debian",
            Shape(3, {**_AUTHORIZER, "num.partitions": "4", "default.replication.factor": "3"}),
            lambda: packages.debian_suite("librdkafka", "2.0.2-1", _LIBRDKAFKA_BUILD),
            _librdkafka,
            "Some tests start Kafka's shell scripts, which are not there.",
        ),
        *(
            Suite(
                f"kafka-{name}",
                f"Kafka's own integration tests of {title}, in KRaft mode",
                KAFKA_4,
                Shape(0),
                kafka_suites.prepare,
                kafka_suites.run,
                how,
                classes=classes.qualified(),
            )
            for name, title, classes, how in kafka_suites.SUITES
        ),
    )
}
NOT_RUN = {
    "kafkajs": "the package in npm's registry has no tests in it",
    "Apache Kafka's tests of core, and kafkatest": "they look into brokers in the same JVM, or start them over SSH",
}
"""Suites that are not run, and why."""


def named(names: Sequence[str]) -> Iterator[Suite]:
    """Return suites by their names, all if none is given.

    Raises:
        KeyError: there is none of that name.
    """
    return (SUITES[name] for name in names or SUITES)
