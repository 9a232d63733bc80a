"""Common parts of the verbs that reach into broker processes: finding the brokers, and asking them.

With ``-b`` or its variable the brokers are the live ones in the responding broker's metadata; else the brokers of the
cluster in ``--dir``, whether they run or not.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

from tidegauge.cli import BOOTSTRAP_VARIABLE
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import metadata_pb2
from tidegauge_client.admin import Admin
from tidegauge_client.channels import Channels
from tidegauge_client.cli.common import servers
from tidegauge_client.cluster_file import BROKERS_BY_ADDRESS, load_cluster_file
from tidegauge_lab.observation import Observer, kafka_brokers
from tidegauge_lab.switches import Switches
from tidegauge_lab.switches.wire import BrokerSilentError

Result = TypeVar("Result")


def with_switches(
    directory: Path, bootstrap_server: str | None, action: Callable[[Switches], Awaitable[Result]]
) -> Result:
    """Do something with the brokers' switches.

    Raises:
        TidegaugeError: there is no cluster, or it can't be done.
    """

    async def do() -> Result:
        async with await _switches(directory, bootstrap_server) as switches:
            try:
                return await action(switches)
            except BrokerSilentError as silent:
                address = (await kafka_brokers_of(switches)).get(silent.broker_id)
                raise silent if address is None else kafkas(silent.broker_id, address) from None

    return asyncio.run(do())


async def kafka_brokers_of(switches: Switches) -> dict[int, str]:
    """Return the client addresses of Apache Kafka brokers by id, as the others name them."""
    channels = Channels(switches.security)
    try:
        observer = Observer(switches.addresses, channels, None)
        said = await asyncio.gather(*(observer.metadata(broker_id, []) for broker_id in switches.broker_ids))
    finally:
        await channels.close()
    return kafka_brokers({one: view for one, view in zip(switches.broker_ids, said, strict=True) if view is not None})


def kafkas(broker_id: int, address: str) -> TidegaugeError:
    """Return the error for an Apache Kafka broker, which has none of the lab's switches."""
    return TidegaugeError(
        ErrorCode.LISTENER_NOT_FOUND,
        f"broker {broker_id} at {address} is an Apache Kafka broker: the lab's faults, holds and inner views are in "
        "Tidegauge's brokers only. Its requests to them can be held, delayed or isolated there",
    )


def means_directory(bootstrap_server: str | None) -> bool:
    """Return whether the brokers belong to the cluster in ``--dir``."""
    return bootstrap_server is None and not os.environ.get(BOOTSTRAP_VARIABLE)


async def _switches(directory: Path, bootstrap_server: str | None) -> Switches:
    """Return the switches of all brokers, and of a local cluster's controllers."""
    if means_directory(bootstrap_server):
        return Switches.of_cluster(load_cluster_file(directory, BROKERS_BY_ADDRESS))
    async with Admin(servers(bootstrap_server, directory)) as admin:
        view = await admin.metadata([])
    addresses = {broker_id: broker.address for broker_id, broker in view.brokers.items()}
    return Switches(addresses, admin.security)


async def replicas_of(switches: Switches, at: TopicPartition) -> Mapping[int, metadata_pb2.ReplicaDescription]:
    """Return the partition's replicas by broker, as far as brokers respond.

    Raises:
        TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, none of them has one; BROKER_NOT_AVAILABLE, none responds.
    """
    channels = Channels(switches.security)
    try:
        observer = Observer(switches.addresses, channels, switches)
        views = await observer.replicas_of_each(switches.broker_ids, [at.topic])
    finally:
        await channels.close()
    if not views:
        raise TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, "no broker responds; nothing was done")
    found = {
        broker_id: one for broker_id, replicas in views.items() for one in replicas if (one.topic, one.partition) == at
    }
    if not found:
        raise TidegaugeError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"no broker that responds has a replica of {at}; `tidegauge list-topics` shows what there is",
        )
    return found


async def each(switches: Switches, ask: Callable[[int], Awaitable[Result]]) -> dict[int, Result]:
    """Ask all brokers at once; those that don't respond are left out."""

    async def one(broker_id: int) -> Result | None:
        try:
            return await ask(broker_id)
        except TidegaugeError as problem:
            if problem.code in {ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT}:
                return None
            raise

    responses = await asyncio.gather(*(one(broker_id) for broker_id in switches.broker_ids))
    return {
        broker_id: response
        for broker_id, response in zip(switches.broker_ids, responses, strict=True)
        if response is not None
    }
