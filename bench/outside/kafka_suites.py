"""Apache Kafka's own integration tests, whose clusters are Tidegauge's in place of Kafka's test kit's.

The tests of streams, connect and clients make their clusters by one class, ``KafkaClusterTestKit``, in the JVM of the
test. On Kafka's side it is Kafka's own; on Tidegauge's the one in ``java/`` stands in for it, first on the class path,
and has ``test_kit.py`` start each test's cluster in KRaft mode. Each class of tests has a JVM of its own.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from fetched import Unavailable, kept
from jars import KAFKA_4
from maven import Artifact, resolve

from outside.results import TIDEGAUGE, Outcome, Result, class_of, from_junit
from tidegauge.java import java_program

HERE = Path(__file__).parent
SOURCES = HERE / "java"
SERVICE = "org.junit.jupiter.api.extension.Extension"
EXTENSIONS = ("WithoutStreamsGroups", "SkipsWhatLooksInside")
"""By which JUnit finds the extensions that skip what a cluster here does not have."""
CLASS_SECONDS = 2_400.0
"""Limit of one class of tests: one that has forty tests starts forty clusters."""
TEST_SECONDS = 180
"""Limit of one test."""
JVM = ("-Xmx900m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
REPORT = "TEST-junit-jupiter.xml"
_OF_KAFKA = (
    ("kafka_2.13", ""),
    ("kafka-streams", ""),
    ("kafka-tools", ""),
    ("connect-runtime", ""),
    ("kafka-test-common-runtime", ""),
    ("kafka_2.13", "test"),
    ("kafka-clients", "test"),
    ("kafka-server-common", "test"),
    ("kafka-streams", "test"),
    ("kafka-streams-integration-tests", "test"),
    ("kafka-clients-integration-tests", "test"),
    ("connect-runtime", "test"),
)
_OF_OTHERS = (
    Artifact("org.junit.platform", "junit-platform-console", "1.13.1"),
    Artifact("org.junit.jupiter", "junit-jupiter", "5.13.1"),
    Artifact("org.mockito", "mockito-junit-jupiter", "5.20.0"),
    Artifact("org.hamcrest", "hamcrest", "3.0"),
    Artifact("org.bouncycastle", "bcpkix-jdk18on", "1.80"),
    Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
)


class Work(Protocol):
    """The input of a run: a ``suites.Task``."""

    @property
    def prepared(self) -> Path:
        """The directory that ``prepare`` returned."""

    @property
    def tests(self) -> Sequence[str]:
        """The classes to run, or tests of them."""

    @property
    def directory(self) -> Path:
        """For reports and logs."""

    @property
    def side(self) -> str:
        """Whose clusters the tests get."""


class Classes(NamedTuple):
    """Classes of tests.

    Attributes:
        package: of all of them.
        names: without that package.
    """

    package: str
    names: Sequence[str]

    def qualified(self) -> list[str]:
        """Return the names with the package."""
        return [f"{self.package}.{name}" for name in self.names]


def prepare() -> Path:
    """Return the directory with the tests' jars and the stand-in's classes.

    Raises:
        Unavailable: no Maven, no Java compiler, or the repository does not have the tests.
    """
    artifacts = [Artifact("org.apache.kafka", name, KAFKA_4, classifier=kind) for name, kind in _OF_KAFKA]
    jars = resolve(f"kafka-tests-{KAFKA_4}", [*artifacts, *_OF_OTHERS])
    compiled(jars)
    return jars


def compiled(jars: Path) -> Path:
    """Return the directory with the stand-in's classes.

    Raises:
        Unavailable: there is no compiler, or it refuses.
    """
    compiler = shutil.which("javac")
    if compiler is None:
        raise Unavailable("there is no Java compiler (javac)")
    sources = sorted(SOURCES.glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]

    def compile_them(directory: Path) -> None:
        command = [compiler, "-cp", f"{jars}/*", "-d", str(directory), *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"the stand-in for Kafka's test kit does not compile: {done.stderr.strip()[:300]}")
        services = directory / "META-INF" / "services"
        services.mkdir(parents=True)
        names = "".join(f"org.apache.kafka.common.test.{name}\n" for name in EXTENSIONS)
        (services / SERVICE).write_text(names, encoding="utf-8")

    return kept(f"kafka-test-kit-{digest}", compile_them)


def run(work: Work) -> list[Result]:
    """Run classes of tests, or single tests of them: each has the name of its class before it."""
    chosen: dict[str, list[str]] = {}
    for test in work.tests:
        place, _, name = test.partition("::")
        chosen.setdefault(class_of(test), []).append(f"{place}#{name.partition('(')[0]}" if name else "")
    return [result for name, methods in chosen.items() for result in _run(work, name, methods)]


def _run(work: Work, name: str, methods: Sequence[str]) -> Iterator[Result]:
    """Run one class, or these methods of it; what has no report has failed."""
    directory = work.directory / name.rpartition(".")[2]
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    said = ""
    with (directory / "output.txt").open("w", encoding="utf-8") as output:
        command = [*_command(work, directory), f"--select-class={name}"]
        if all(methods):
            command.append(f"--include-methodname=^({'|'.join(map(re.escape, methods))})$")
        try:
            subprocess.run(command, stdout=output, stderr=output, check=False, timeout=CLASS_SECONDS)
        except subprocess.TimeoutExpired:
            said = f"the class did not end in {CLASS_SECONDS:.0f} s"
    report = directory / REPORT
    found = from_junit(report.read_text(encoding="utf-8")) if report.exists() else []
    if not found:
        found = [Result(name, Outcome.FAILED, said or _why(directory / "output.txt"))]
    print(f"{name}: {', '.join(f'{sum(one.outcome is way for one in found)} {way}' for way in Outcome)}", flush=True)
    yield from found


def _command(work: Work, directory: Path) -> list[str]:
    """Return the command that runs tests, but for what chooses them."""
    classpath, cluster = [f"{work.prepared}/*"], []
    if work.side == TIDEGAUGE:
        classpath.insert(0, str(compiled(work.prepared)))
        cluster = [f"-Doutside.cluster={sys.executable}|-m|outside.test_kit"]
    return [
        java_program(),
        *JVM,
        *cluster,
        "-Dlog4j2.level=WARN",
        "-cp",
        ":".join(classpath),
        "org.junit.platform.console.ConsoleLauncher",
        "execute",
        "--disable-banner",
        "--details=none",
        f"--reports-dir={directory}",
        "--config=junit.jupiter.extensions.autodetection.enabled=true",
        "--config=junit.jupiter.execution.timeout.testable.method.default=" + f"{TEST_SECONDS}s",
    ]


def _why(output: Path) -> str:
    """Return the line of a run without a report that names the problem."""
    lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
    reasons = [line.strip() for line in lines if line.strip().startswith(("=> ", "Caused by: "))]
    return reasons[-1] if reasons else "it reported nothing"


STREAMS = Classes(
    "org.apache.kafka.streams.integration",
    (
        "AdjustStreamThreadCountTest",
        "EosIntegrationTest",
        "FineGrainedAutoResetIntegrationTest",
        "GlobalKTableEOSIntegrationTest",
        "GlobalKTableIntegrationTest",
        "GlobalThreadShutDownOrderTest",
        "InternalTopicIntegrationTest",
        "JoinStoreIntegrationTest",
        "JoinWithIncompleteMetadataIntegrationTest",
        "KStreamAggregationDedupIntegrationTest",
        "KStreamAggregationIntegrationTest",
        "KStreamRepartitionIntegrationTest",
        "KTableKTableForeignKeyJoinIntegrationTest",
        "KTableSourceTopicRestartIntegrationTest",
        "LagFetchIntegrationTest",
        "MetricsIntegrationTest",
        "OptimizedKTableIntegrationTest",
        "PauseResumeIntegrationTest",
        "PurgeRepartitionTopicIntegrationTest",
        "QueryableStateIntegrationTest",
        "RegexSourceIntegrationTest",
        "ResetPartitionTimeIntegrationTest",
        "RestoreIntegrationTest",
        "SmokeTestDriverIntegrationTest",
        "StandbyTaskCreationIntegrationTest",
        "StandbyTaskEOSIntegrationTest",
        "StoreQueryIntegrationTest",
        "SuppressionDurabilityIntegrationTest",
        "SuppressionIntegrationTest",
        "TaskMetadataIntegrationTest",
    ),
)
CLIENTS = Classes(
    "org.apache.kafka.clients",
    (
        "ClientRebootstrapTest",
        "MetadataVersionIntegrationTest",
        "MetricsDuringTopicCreationDeletionTest",
        "TransactionsExpirationTest",
        "TransactionsWithMaxInFlightOneTest",
        "admin.AdminFenceProducersTest",
        "admin.AutoTopicCreationTest",
        "admin.ConcurrentListOffsetsRequestTest",
        "admin.DeleteTopicTest",
        "admin.DescribeFeaturesTest",
        "admin.DescribeProducersWithBrokerIdTest",
        "admin.DynamicGroupConfigIntegrationTest",
        "admin.ListOffsetsIntegrationTest",
        "admin.RackAwareAutoTopicCreationTest",
        "admin.StaticBrokerConfigTest",
        "consumer.ConsumerBounceTest",
        "consumer.ConsumerIntegrationTest",
        "consumer.ConsumerTopicCreationTest",
        "consumer.ConsumerWithLegacyMessageFormatIntegrationTest",
        "consumer.PlaintextConsumerAssignTest",
        "consumer.PlaintextConsumerCallbackTest",
        "consumer.PlaintextConsumerCloseTest",
        "consumer.PlaintextConsumerCommitTest",
        "consumer.PlaintextConsumerFetchTest",
        "consumer.PlaintextConsumerPollTest",
        "consumer.PlaintextConsumerSubscriptionTest",
        "consumer.PlaintextConsumerTest",
        "consumer.ShareConsumerRackAwareTest",
        "consumer.ShareConsumerTest",
        "producer.ProducerCompressionTest",
        "producer.ProducerFailureHandlingTest",
        "producer.ProducerIdExpirationTest",
        "producer.ProducerIntegrationTest",
        "producer.ProducerSendWhileDeletionTest",
    ),
)
CONNECT = Classes(
    "org.apache.kafka.connect.integration",
    (
        "BlockingConnectorTest",
        "ConnectWorkerIntegrationTest",
        "ConnectorClientPolicyIntegrationTest",
        "ConnectorRestartApiIntegrationTest",
        "ConnectorTopicsIntegrationTest",
        "ConnectorValidationIntegrationTest",
        "ErrorHandlingIntegrationTest",
        "ExactlyOnceSourceIntegrationTest",
        "ExampleConnectIntegrationTest",
        "InternalTopicsIntegrationTest",
        "MonitorableSinkIntegrationTest",
        "MonitorableSourceIntegrationTest",
        "OffsetsApiIntegrationTest",
        "RebalanceSourceConnectorsIntegrationTest",
        "RestExtensionIntegrationTest",
        "RestForwardingIntegrationTest",
        "SessionedProtocolIntegrationTest",
        "SinkConnectorsIntegrationTest",
        "SourceConnectorsIntegrationTest",
        "StandaloneWorkerIntegrationTest",
        "TransformationIntegrationTest",
    ),
)
_HOW = (
    "Tidegauge's clusters are started outside of the test's JVM; `bench/outside/java/KafkaClusterTestKit.java` stands "
    "in for Kafka's test kit, and asks brokers over the protocol for logs, leaders and offsets in the metadata log. A "
    "test that looks deeper into a broker's process is skipped."
)
SUITES = (
    (
        "streams",
        "Kafka Streams",
        STREAMS,
        _HOW + " Clusters have no groups of the streams protocol, and EosIntegrationTest, each of whose tests sets "
        "`streams.num.standby.replicas` of its group, can't pass.",
    ),
    (
        "clients",
        "its clients",
        CLIENTS,
        _HOW + " Without classes that need SASL, an authorizer, or a plugin in brokers.",
    ),
    ("connect", "Kafka Connect", CONNECT, _HOW),
)
"""Name, title, classes, and how they are run."""
