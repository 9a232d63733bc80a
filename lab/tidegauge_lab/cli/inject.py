"""``tidegauge inject-error``, ``inject-disk``, ``expire-session``, ``sync``: faults inside one broker.

Counts are the same everywhere: the first call (operation) is met, or the Nth with ``--nth``, once or ``--times`` in a
row (0: without end), each with ``--probability``. `tidegauge faults` lists what is in force, ``--clear`` ends it.
"""

from __future__ import annotations

from pathlib import Path

import click

from tidegauge.cli import print_json, verb_options
from tidegauge.faults.table import INJECT_DISK, INJECT_ERROR
from tidegauge.partition import TopicPartition
from tidegauge_lab.cli.common import BrokerIdType, lab_verb
from tidegauge_lab.cli.fault_verbs import fault_verb
from tidegauge_lab.cli.faults import PartitionType
from tidegauge_lab.cli.switching import with_switches

inject_error = fault_verb(INJECT_ERROR)
inject_disk = fault_verb(INJECT_DISK)


@click.command("expire-session")
@click.argument("broker_id", type=BrokerIdType(), metavar="ID")
@verb_options
@lab_verb
def expire_session(broker_id: int, output: str, directory: Path, bootstrap_server: str | None) -> None:
    """End a broker's ZooKeeper session on the server, at once."""
    session_id = with_switches(directory, bootstrap_server, lambda switches: switches.expire_session(broker_id))
    if output == "json":
        print_json({"broker": broker_id, "session": f"0x{session_id:x}"})
    else:
        click.echo(f"Ended the ZooKeeper session 0x{session_id:x} of broker {broker_id}.")


@click.command()
@click.argument("broker_id", type=BrokerIdType(), metavar="ID")
@click.argument("partition", type=PartitionType(), required=False, metavar="[T-P]")
@verb_options
@lab_verb
def sync(
    broker_id: int, partition: TopicPartition | None, output: str, directory: Path, bootstrap_server: str | None
) -> None:
    """Flush a replica's log to the disk, or all of a broker: a power loss can't take it any more."""
    flushed = with_switches(directory, bootstrap_server, lambda switches: switches.sync_log(broker_id, partition))
    if output == "json":
        logs = [{"partition": str(at), "recovery_point": offset} for at, offset in flushed.items()]
        print_json({"broker": broker_id, "logs": logs})
        return
    for at, offset in flushed.items():
        click.echo(f"Broker {broker_id} has flushed {at} up to offset {offset}.")
