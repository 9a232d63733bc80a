"""Start ZooKeeper and brokers, and wait until they are what was asked for.

Rules:
- Ports are looked at before a process starts, so that the sentence names the holder; a recorded port never changes.
- ZooKeeper serves before the first broker starts. What brokers load is loaded meanwhile (``launcher``).
- A process that ends while it is waited for fails the wait at once, with the last line it wrote: brokers tell in one
  sentence why they refuse to start.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from tidegauge.cluster_directory import command_for
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.files import naming
from tidegauge.partition import TopicPartition
from tidegauge_client.cluster_file import OWNER_ALONE, BrokerEntry, ClusterFile, holds_secrets, load_cluster_file
from tidegauge_lab.local import layout, ports, readiness, zookeeper
from tidegauge_lab.local.broker_settings import server_properties, ways_among_brokers
from tidegauge_lab.local.launcher import Launcher, environment_of_brokers
from tidegauge_lab.local.processes import LabProcess
from tidegauge_lab.local.waiting import TimeLimitError, holds_within
from tidegauge_lab.observation import BlockingObserver, Observation

BROKER_MODULE = "tidegauge_broker.server.verb"
FOR_OWNER_ALONE = 0o077
"""File mode creation mask of ZooKeeper: its files hold the users' SCRAM keys."""
_ZOOKEEPER_LIMIT_SECONDS = 60.0
_HEAD_START_SECONDS = 30.0
_CONFIG_FILE = "zoo.cfg"


def require_ports(file: ClusterFile, broker_ids: Collection[int], *, with_zookeeper: bool) -> None:
    """Refuse a busy port of a process that is about to start.

    Raises:
        TidegaugeError: with the holder's name.
    """
    if with_zookeeper:
        [(_, port)] = zookeeper.split_address(file.zookeeper_address)
        ports.require_free(port, "ZooKeeper")
    for broker_id in sorted(broker_ids):
        broker = file.broker(broker_id)
        ports.require_free(broker.port, f"broker {broker_id}")
        if broker.kafka_port:
            ports.require_free(broker.kafka_port, f"broker {broker_id}, for Kafka clients,")


def start_zookeeper(directory: Path, file: ClusterFile) -> int:
    """Start the cluster's own ZooKeeper and wait until it serves; gives its pid.

    Raises:
        TidegaugeError: Java or PySpark is missing, or it ended.
        TimeLimitError: it does not serve in time.
    """
    process = layout.zookeeper_process(directory)
    [(_, port)] = zookeeper.split_address(file.zookeeper_address)
    config = process.directory / _CONFIG_FILE
    command = zookeeper.server_command(config)
    data = process.directory / "data"
    with naming(data):
        for path in (process.directory, data):
            layout.make_private(path)
    with naming(config):
        config.write_text(zookeeper.server_config(data, port), encoding="utf-8")
    since = process.log_size()
    pid = process.spawn(command, umask=FOR_OWNER_ALONE)

    def serves() -> bool:
        if process.pid is None:
            raise ended(process, since)
        return zookeeper.responds(file.zookeeper_address)

    if not holds_within(serves, _ZOOKEEPER_LIMIT_SECONDS):
        raise TimeLimitError(
            f"ZooKeeper does not serve after {_ZOOKEEPER_LIMIT_SECONDS:g} s; its log is {process.log_file}"
        )
    return pid


def require_zookeeper(directory: Path, file: ClusterFile) -> None:
    """Refuse to start brokers without a ZooKeeper.

    Raises:
        TidegaugeError: BROKER_NOT_AVAILABLE, it is down, paused or out of reach.
    """
    if file.zookeeper_managed:
        state = layout.zookeeper_process(directory).state.value
        if state != "up":
            verb = "resume" if state == "paused" else "start"
            raise TidegaugeError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"ZooKeeper is {state}, and a broker can't register without it: "
                f"{command_for(directory, f'{verb} --zookeeper')} first",
            )
    elif not zookeeper.is_reachable(file.zookeeper_address):
        raise TidegaugeError(
            ErrorCode.BROKER_NOT_AVAILABLE, f"no ZooKeeper listens at {file.zookeeper_address}; start it first"
        )


def start_broker(
    directory: Path,
    file: ClusterFile,
    broker: BrokerEntry,
    *,
    held: Collection[TopicPartition] = (),
    launcher: Launcher | None = None,
) -> int:
    """Write its ``server.properties`` and start it, without waiting; gives its pid.

    Followers of ``held`` partitions are held on it from the start; the next start knows nothing of that. With a
    ``launcher`` it need not load what that has loaded.
    """
    process = layout.broker_process(directory, broker.id)
    process.directory.mkdir(parents=True, exist_ok=True)
    config = process.directory / "server.properties"
    if holds_secrets(file.settings):
        config.touch(OWNER_ALONE)
        config.chmod(OWNER_ALONE)
    text = server_properties(
        broker,
        directory,
        zookeeper_connect=file.zookeeper_address,
        profile=file.profile,
        settings=file.settings,
        broker_count=len(file.brokers),
        kafka_host=file.kafka_host,
        among_brokers=ways_among_brokers(file),
    )
    with naming(config):
        config.write_text(text, encoding="utf-8")
    # -P: a module of the user's that lies in the directory must not stand in for one of ours.
    command = [sys.executable, "-P", "-m", BROKER_MODULE, "--config", str(config)]
    if held:
        command += ["--override", f"lab.held={','.join(map(str, held))}"]
    environment = environment_of_brokers()
    if launcher is not None:
        return launcher.start(process, command, environment)
    return process.spawn(command, environment)


def wait_brokers(
    directory: Path,
    brokers: Collection[BrokerEntry],
    lacks: Callable[[Mapping[int, Observation]], str],
    limit_seconds: float,
    log_places: Mapping[int, int] | None = None,
) -> None:
    """Wait until nothing is lacking any more.

    Args:
        directory: the cluster's directory.
        brokers: whose views count; none of them may end meanwhile.
        lacks: says what is lacking, by their views.
        limit_seconds: for all of it.
        log_places: sizes of the brokers' logs before their start.

    Raises:
        TidegaugeError: a broker ended.
        TimeLimitError: with what was lacking at the end.
    """
    processes = {broker.id: layout.broker_process(directory, broker.id) for broker in brokers}
    lacking = ""
    security = load_cluster_file(directory).security
    with BlockingObserver({broker.id: broker.address for broker in brokers}, security) as asked:

        def complete() -> bool:
            nonlocal lacking
            for broker_id, process in processes.items():
                if process.pid is None:
                    raise ended(process, (log_places or {}).get(broker_id, 0))
            lacking = lacks(asked.readiness())
            return lacking == ""

        if not holds_within(complete, limit_seconds):
            raise TimeLimitError(
                f"after {limit_seconds:g} s {lacking}; logs are in {directory / layout.LOGS} "
                f"({command_for(directory, 'logs')})"
            )


def give_head_start(directory: Path, broker: BrokerEntry, log_place: int) -> None:
    """Wait until a broker knows a controller, itself where no other one is; or for ``_HEAD_START_SECONDS``.

    Raises:
        TidegaugeError: the broker ended.
    """
    with contextlib.suppress(TimeLimitError):  # the session of an earlier controller may not have ended
        wait_brokers(directory, [broker], each_ready({broker.id}), _HEAD_START_SECONDS, {broker.id: log_place})


def all_ready(expected: Collection[int]) -> Callable[[Mapping[int, Observation]], str]:
    """Return what the whole cluster lacks."""
    return lambda views: readiness.lacks(views, expected)


def each_ready(expected: Collection[int]) -> Callable[[Mapping[int, Observation]], str]:
    """Return what these brokers lack, each by itself."""

    def lacks(views: Mapping[int, Observation]) -> str:
        sentences = (readiness.broker_lacks(broker_id, views.get(broker_id), {broker_id}) for broker_id in expected)
        return next((sentence for sentence in sentences if sentence), "")

    return lacks


def ended(process: LabProcess, log_place: int) -> TidegaugeError:
    """Return the error of a process that ended while the caller waited for it."""
    words = process.last_words(log_place).splitlines()
    why = words[-1].strip() if words else "it wrote nothing"
    return TidegaugeError(
        ErrorCode.BROKER_NOT_AVAILABLE, f"{process.name} ended while it started: {why} (its log: {process.log_file})"
    )
