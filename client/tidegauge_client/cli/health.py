"""``health``: is a broker alive and ready? By gRPC's health service, with a timeout of one second for each.

Alive: the process responds. Ready: it is registered, has metadata, and its replicas have the roles that the controller
gave them at its start (service ``tidegauge.ready``). Exit code 0 if all brokers asked are ready, else 1. With ``-b``
those addresses are asked, else all of the cluster in ``--dir``. An Apache Kafka broker with the id of one of them
can't be asked; that it is registered is what the others say.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

import click
import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tidegauge.cli import EXIT_FAILED, print_json, print_text, reports_errors, verb_options
from tidegauge.errors import TidegaugeError
from tidegauge_client.admin import Admin
from tidegauge_client.bootstrap import BootstrapServers
from tidegauge_client.channels import Channels, Unreachable, translate
from tidegauge_client.cli.common import JSON, run, servers
from tidegauge_client.cluster_file import load_cluster_file
from tidegauge_client.handshake import tls_reason
from tidegauge_client.kafka_address import grpc_addresses
from tidegauge_client.kafka_brokers import own_words

READY_SERVICE = "tidegauge.ready"
TIMEOUT_SECONDS = 1.0


class Health(NamedTuple):
    """A broker's health."""

    address: str
    is_alive: bool
    is_ready: bool
    why: str = ""

    @property
    def state(self) -> str:
        """Return the health in a word or two."""
        if self.is_ready:
            return "ready"
        because = f": {self.why}" if self.why else ""
        return "alive, not ready" if self.is_alive else f"does not respond{because}"


async def check(channels: Channels, address: str) -> Health:
    """Ask one broker."""
    # The health package ships no types.
    stub: Any = health_pb2_grpc.HealthStub(channels.channel(address))
    try:
        response = await stub.Check(health_pb2.HealthCheckRequest(service=READY_SERVICE), timeout=TIMEOUT_SECONDS)
    except grpc.aio.AioRpcError as problem:
        if problem.code() is grpc.StatusCode.NOT_FOUND:
            return Health(address, is_alive=True, is_ready=False)
        error = translate(problem, address)
        if isinstance(error, Unreachable) and error.hung_up:
            for other in (await grpc_addresses(address, channels.security))[:1]:
                return (await check(channels, other))._replace(address=address)
        why = await tls_reason(error, address, channels.security) if isinstance(error, Unreachable) else None
        return Health(address, is_alive=False, is_ready=False, why=why or "")
    return Health(address, True, response.status == health_pb2.HealthCheckResponse.SERVING)


async def with_kafkas(found: list[Health], bootstrap: BootstrapServers, directory: Path) -> list[Health]:
    """Say of silent brokers of the cluster in ``--dir`` which have an Apache Kafka broker in their place."""
    if all(one.is_alive for one in found):
        return found
    try:
        ids = {entry.address: entry.id for entry in load_cluster_file(directory).brokers}
        async with Admin(bootstrap) as admin:
            kafkas = (await admin.metadata([])).kafka_brokers
    except TidegaugeError:
        return found
    return [
        one._replace(why=f"broker {kafka.id} is Apache Kafka's now, registered at {kafka.address}, without gRPC")
        if not one.is_alive and (kafka := kafkas.get(ids.get(one.address, -1))) is not None
        else one
        for one in found
    ]


async def address_of(bootstrap: BootstrapServers, bootstrap_server: str | None, directory: Path, broker: int) -> str:
    """Return a broker's address: from the cluster's file, or else from the cluster.

    Raises:
        TidegaugeError: BROKER_NOT_AVAILABLE.
    """
    if bootstrap_server is None:
        try:
            return load_cluster_file(directory).broker(broker).address
        except TidegaugeError:
            if (directory / "cluster.json").exists():
                raise
    async with Admin(bootstrap) as admin:
        info = await admin.metadata([])
        found = info.brokers.get(broker)
        if broker in info.kafka_brokers:
            raise own_words(info.kafka_brokers[broker], "kafka-broker-api-versions.sh")
    return "" if found is None else found.address


@click.command("health")
@click.option("--broker", type=click.IntRange(min=0), metavar="ID", help="Ask only this broker.")
@verb_options
@reports_errors
def health(broker: int | None, bootstrap_server: str | None, directory: Path, output: str) -> None:
    """Ask brokers whether they are ready."""
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> list[Health]:
        addresses: list[str] = bootstrap
        if broker is not None:
            addresses = [await address_of(bootstrap, bootstrap_server, directory, broker)]
        channels = Channels(bootstrap.security)
        try:
            asked = list(await asyncio.gather(*(check(channels, address) for address in addresses if address)))
            return asked if bootstrap_server is not None else await with_kafkas(asked, bootstrap, directory)
        finally:
            await channels.close()

    found = run(work())
    if output == JSON:
        print_json({"brokers": [{"address": h.address, "alive": h.is_alive, "ready": h.is_ready} for h in found]})
    elif not found:
        print_text(f"broker {broker} is not registered")
    else:
        for one in found:
            print_text(f"{one.address} {one.state}")
    if not found or not all(one.is_ready for one in found):
        raise SystemExit(EXIT_FAILED)
