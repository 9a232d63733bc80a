"""Other addresses for Kafka clients, such as ports that a container runner has mapped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tidegauge_client.sync import SyncAdmin
from tidegauge_lab.control.control_request import is_number
from tidegauge_lab.control.problems import malformed, not_found
from tidegauge_lab.control.shapes import shown
from tidegauge_lab.local.broker_settings import ways_among_brokers
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.processes import ProcessState

_SETTING, _ALTERED = "advertised.listeners", "DYNAMIC_BROKER_CONFIG"
_ADDRESS = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")


def forget_altered(local: LocalCluster, broker_ids: Iterable[int]) -> None:
    """Delete ``advertised.listeners`` where a client has altered it in a running broker: it has precedence.

    Raises:
        TidegaugeError: a broker does not respond.
    """
    with SyncAdmin(local.bootstrap_servers) as admin:
        for broker_id in broker_ids:
            if local.state_of(broker_id) is not ProcessState.UP:
                continue
            entries = {entry.name: entry for entry in admin.describe_broker_settings(broker_id)}
            if entries[_SETTING].source == _ALTERED:
                admin.wait_for_change(admin.alter_broker_settings(broker_id, {}, [_SETTING]))


def advertise(
    local: LocalCluster,
    addresses: Mapping[str, str],
    forget: Callable[[LocalCluster, Iterable[int]], None] = forget_altered,
) -> dict[str, Any]:
    """Let brokers advertise these addresses; blocks until those that change are ready again.

    The addresses go into each broker's file, so each one whose address changes is stopped and started; and all of them
    when brokers can no longer reach one another, or can again, at the addresses that clients are given.

    Args:
        local: the cluster.
        addresses: ``host:port`` by the broker's id.
        forget: deletes settings that override the files.

    Raises:
        RefusedError: 400, a name is no broker id or a value no address; 404, there is no such broker.
        TidegaugeError: a broker does not start.
    """
    wanted: dict[int, str] = {}
    known = {broker.id for broker in local.file.brokers}
    for name, address in addresses.items():
        if not is_number(name):
            raise malformed(f"{shown(name)} is no broker's id")
        if int(name) not in known:
            raise not_found(f"there is no broker {name}")
        if not _ADDRESS.fullmatch(address) or int(address.rpartition(":")[2]) not in range(1, 65536):
            raise malformed(f"{shown(address)} is no address: write HOST:PORT")
        wanted[int(name)] = address
    forget(local, wanted)
    changed = [
        broker.id for broker in local.file.brokers if wanted.get(broker.id, broker.advertised) != broker.advertised
    ]
    if changed:
        brokers = [
            replace(broker, advertised=wanted.get(broker.id, broker.advertised)) for broker in local.file.brokers
        ]
        if ways_among_brokers(replace(local.file, brokers=brokers)) != ways_among_brokers(local.file):
            changed = [broker.id for broker in brokers]
        local.change_brokers(brokers, changed)
    return {"kafka_bootstrap_servers": ",".join(local.kafka_bootstrap_servers), "restarted": changed}
