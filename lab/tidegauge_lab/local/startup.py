"""Start brokers, and wait until they are ready as requested.

Rules:
- Ports are looked at before a process starts, so that the sentence names the holder; a recorded port never changes.
- ZooKeeper or the controllers serve before the first broker starts (``topology``). Brokers' modules are loaded
  meanwhile (``launcher``).
- A process that ends while it is waited for fails the wait at once, with the last line it wrote: brokers tell in one
  sentence why they refuse to start.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidegauge.cluster_directory import command_for
from tidegauge.files import naming
from tidegauge.partition import TopicPartition
from tidegauge_client.cluster_file import OWNER_ALONE, BrokerEntry, ClusterFile, holds_secrets, load_cluster_file
from tidegauge_lab.local import layout, ports, processes, readiness
from tidegauge_lab.local.broker_settings import server_properties, ways_among_brokers
from tidegauge_lab.local.launcher import BROKER, ZOOKEEPER, Launcher, environment_of_brokers
from tidegauge_lab.local.topology import topology_of
from tidegauge_lab.local.waiting import TimeLimitError, holds_within

if TYPE_CHECKING:
    from tidegauge_lab.observation import Observation

_HEAD_START_SECONDS = 30.0


def require_ports(file: ClusterFile, broker_ids: Collection[int]) -> None:
    """Refuse a busy port of a broker that is about to start.

    Raises:
        TidegaugeError: with the holder's name.
    """
    for broker_id in sorted(broker_ids):
        broker = file.broker(broker_id)
        ports.require_free(broker.port, f"broker {broker_id}")
        if broker.kafka_port:
            ports.require_free(broker.kafka_port, f"broker {broker_id}, for Kafka clients,")


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
    topology = topology_of(directory, file)
    topology.prepare(broker.id)
    text = server_properties(
        broker,
        directory,
        membership=topology.broker_settings(broker.id),
        profile=file.profile,
        settings=file.settings,
        broker_count=len(file.brokers),
        kafka_host=file.kafka_host,
        among_brokers=ways_among_brokers(file),
    )
    with naming(config):
        config.write_text(text, encoding="utf-8")
    # -P: a module of the user's that lies in the directory must not stand in for one of ours.
    command = [sys.executable, "-P", "-m", BROKER, "--config", str(config)]
    if held:
        command += ["--override", f"lab.held={','.join(map(str, held))}"]
    environment = environment_of_brokers()
    if launcher is not None:
        if file.quorum is None:
            launcher.load(ZOOKEEPER)
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
        lacks: returns the missing condition, by their views.
        limit_seconds: for all of it.
        log_places: sizes of the brokers' logs before their start.

    Raises:
        TidegaugeError: a broker ended.
        TimeLimitError: with the condition still missing at the end.
    """
    from tidegauge_lab.observation import BlockingObserver  # noqa: PLC0415 - only what asks brokers needs gRPC

    running = {broker.id: layout.broker_process(directory, broker.id) for broker in brokers}
    lacking = ""
    security = load_cluster_file(directory).security
    with BlockingObserver({broker.id: broker.address for broker in brokers}, security) as asked:

        def complete() -> bool:
            nonlocal lacking
            for broker_id, process in running.items():
                if process.pid is None:
                    raise processes.ended(process, (log_places or {}).get(broker_id, 0))
            lacking = lacks(asked.readiness())
            return lacking == ""

        if not holds_within(complete, limit_seconds):
            raise TimeLimitError(
                f"after {limit_seconds:g} s {lacking}; logs are in {directory / layout.LOGS} "
                f"({command_for(directory, 'logs')})"
            )


def give_head_start(directory: Path, broker: BrokerEntry, log_place: int) -> None:
    """Wait until a broker knows a controller, perhaps itself, at most ``_HEAD_START_SECONDS``.

    Raises:
        TidegaugeError: the broker ended.
    """
    with contextlib.suppress(TimeLimitError):  # the session of an earlier controller may not have ended
        wait_brokers(directory, [broker], each_ready({broker.id}), _HEAD_START_SECONDS, {broker.id: log_place})


def all_ready(
    expected: Collection[int], *, names_controller: bool = True
) -> Callable[[Mapping[int, Observation]], str]:
    """Return what the whole cluster lacks; ``names_controller`` is as in ``Topology``."""
    return lambda views: readiness.lacks(views, expected, names_controller=names_controller)


def each_ready(
    expected: Collection[int], *, names_controller: bool = True
) -> Callable[[Mapping[int, Observation]], str]:
    """Return what these brokers lack, each by itself; ``names_controller`` is as in ``Topology``."""

    def lacks(views: Mapping[int, Observation]) -> str:
        sentences = (
            readiness.broker_lacks(broker_id, views.get(broker_id), {broker_id}, names_controller=names_controller)
            for broker_id in expected
        )
        return next((sentence for sentence in sentences if sentence), "")

    return lacks
