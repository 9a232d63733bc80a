"""``tidegauge up``, ``down``, ``status``: the cluster in ``--dir`` as a whole.

Contract: ``up -d`` returns once the cluster is ready and prints addresses and the next commands to paste. Without
``-d`` it stays in front, and Ctrl-C (or SIGTERM) takes the cluster down, exit 130; where the command is killed, a guard
ends the processes at once, and data and logs stay. A foreground ``up`` also ends, with 0, when another command took the
cluster down.

Only the options are here. Implementations are imported when a verb runs: ``up`` has a launcher load what nodes need
meanwhile (``tidegauge_lab.local.launcher.ahead``).
"""

from __future__ import annotations

from pathlib import Path

import click

from tidegauge.cli import directory_option, output_option
from tidegauge_lab.cli.control import DEFAULT_CONTROL, LISTEN_ADDRESS, control_options
from tidegauge_lab.cli.verbs import ZOOKEEPER_ADDRESS, lab_verb
from tidegauge_lab.local.launcher import BROKER, CONTROLLER, ahead


@click.command()
@click.option("--brokers", type=click.IntRange(min=1), metavar="N", help="Brokers 0..N-1.  [default: 3]")
@click.option("--profile", type=click.Choice(["fast", "kafka"]), help="Short waits, or Kafka's.  [default: fast]")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="K=V",
    help="A broker setting; N:K=V sets it for broker N alone; may be repeated.",
)
@click.option(
    "--zookeeper", type=ZOOKEEPER_ADDRESS, metavar="H:P", help="Use this ZooKeeper instead of one of its own."
)
@click.option(
    "--zookeeper-port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="The cluster's own ZooKeeper listens there.  [default: 12181, or the next free one]",
)
@click.option("--kraft", is_flag=True, help="Use a quorum of controllers instead of ZooKeeper, as Kafka 4 does.")
@click.option("--controllers", type=int, metavar="N", help="With --kraft: 1, 3 or 5 of them.  [default: 3]")
@click.option(
    "--controller-port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="With --kraft: the first controller listens there.  [default: 9392, or the next free ones]",
)
@click.option("--combined", is_flag=True, help="With --kraft: brokers are the controllers.")
@click.option("--release-version", metavar="VERSION", help="With --kraft: the release whose features the cluster has.")
@click.option(
    "--feature",
    "features",
    multiple=True,
    metavar="NAME=LEVEL",
    help="With --kraft: the level of one feature; may be repeated.",
)
@click.option(
    "--as-kafka",
    multiple=True,
    metavar="[N:]RELEASE",
    help="Brokers (broker N) pass for this release of Kafka: 2.8 to 3.9, or 4.0 to 4.3 in KRaft mode; may be repeated.",
)
@click.option(
    "--kafka-port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="Broker ID serves Kafka clients on N+ID.  [default: 9092, or the next free ones]",
)
@click.option(
    "--kafka-host",
    metavar="HOST",
    help="Brokers listen there for Kafka clients, and advertise it; 0.0.0.0, in a container, advertises 127.0.0.1.",
)
@click.option(
    "--base-port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="Broker ID serves gRPC on N+ID.  [default: 19092, or the next free ones]",
)
@click.option(
    "--control",
    type=LISTEN_ADDRESS,
    is_flag=False,
    flag_value=DEFAULT_CONTROL,
    metavar="[HOST:PORT]",
    help=f"Serve the control interface over HTTP there (docs/steering.md).  [without a value: {DEFAULT_CONTROL}]",
)
@control_options
@click.option("-d", "--detach", is_flag=True, help="Return when the cluster is ready, and leave it running.")
@directory_option
@output_option
@lab_verb
def up(
    brokers: int | None,
    profile: str | None,
    settings: tuple[str, ...],
    zookeeper: str | None,
    zookeeper_port: int | None,
    kraft: bool,
    controllers: int | None,
    controller_port: int | None,
    combined: bool,
    release_version: str | None,
    features: tuple[str, ...],
    as_kafka: tuple[str, ...],
    kafka_port: int | None,
    kafka_host: str | None,
    base_port: int | None,
    control: str | None,
    control_name: tuple[str, ...],
    detach: bool,
    directory: Path,
    output: str,
) -> None:
    """Start ZooKeeper and brokers on 127.0.0.1; a second `up` restarts them on the old data.

    Broker 0 is started first, so that it is the controller. With --kraft a quorum of controllers takes ZooKeeper's
    place, which needs no Java.
    """
    if kraft and (zookeeper is not None or zookeeper_port is not None):
        raise click.UsageError(
            "Option --kraft is for a cluster without ZooKeeper; it can't be used with --zookeeper or --zookeeper-port"
        )
    if zookeeper is not None and zookeeper_port is not None:
        raise click.UsageError(
            "Option --zookeeper-port is for the cluster's own ZooKeeper; it can't be used with --zookeeper"
        )
    begins_with_controllers = (kraft or any(_is_of_kraft(text) for text in as_kafka)) and not combined
    with ahead(directory.absolute(), CONTROLLER if begins_with_controllers else BROKER):
        from tidegauge_lab.cli import running  # noqa: PLC0415 - a launcher loads beside this

        cluster = running.create(
            directory,
            output,
            brokers=brokers,
            profile=profile,
            settings=settings,
            zookeeper=zookeeper,
            base_port=base_port,
            zookeeper_port=zookeeper_port,
            kafka_port=kafka_port,
            kafka_host=kafka_host,
            is_kraft=kraft,
            controllers=controllers,
            is_combined=combined,
            release_version=release_version,
            features=features,
            as_kafka=as_kafka,
            controller_port=controller_port,
        )
        has_new = bool(settings or profile)
        running.start(cluster, output, control, control_name, detach=detach, has_new_settings=has_new)


def _is_of_kraft(as_kafka: str) -> bool:
    """Return whether the named release is of KRaft mode; its existence is checked later."""
    return not as_kafka.rpartition(":")[2].startswith(("2.", "3."))


@click.command()
@click.option("--purge", is_flag=True, help="Delete the data and logs of the cluster too.")
@directory_option
@output_option
@lab_verb
def down(purge: bool, directory: Path, output: str) -> None:
    """Stop everything; returns when all processes have ended. Without a cluster there is nothing to do."""
    from tidegauge_lab.cli import running  # noqa: PLC0415 - `up` must not wait for it

    running.take_down(directory, output, purge=purge)


@click.command()
@directory_option
@output_option
@lab_verb
def status(directory: Path, output: str) -> None:
    """Show every process of the cluster, who is the controller, the groups, and where transactions hold readers."""
    from tidegauge_lab.cli import running  # noqa: PLC0415 - `up` must not wait for it

    running.show(directory, output)
