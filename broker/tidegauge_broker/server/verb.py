"""``tidegauge broker``: one broker in the foreground.

Talks on stderr; SIGTERM and Ctrl-C stop it the controlled way, exit 0. A problem that prevents a start is one sentence
on stderr, exit 1. The limit of open files is raised to the hard one; memory that was freed is kept for large responses
(``allocator``). The pure core's invariants are assertions, so ``python -O`` is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import sys
from pathlib import Path

import click

from tidegauge.cli import EXIT_FAILED, directory_option, fail, output_option
from tidegauge.environment import settings_of_environment
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.listeners import WITH_SASL, WITH_TLS
from tidegauge.near_names import did_you_mean
from tidegauge.sasl_client import Login
from tidegauge.security import PLAINTEXT, SSL, security_of
from tidegauge.settings import (
    BROKER_SETTINGS,
    KRAFT_BROKER_SETTINGS,
    Values,
    listeners_of,
    parse_broker_settings,
    read_assignments,
    read_properties,
)
from tidegauge.settings.document import help_lines
from tidegauge_broker.server.allocator import keep_freed_memory
from tidegauge_broker.server.broker_identity import BrokerIdentity
from tidegauge_broker.server.broker_process import BrokerProcess
from tidegauge_broker.server.cluster import chosen
from tidegauge_broker.server.cluster.node_of import as_broker, is_kraft, kraft_node
from tidegauge_broker.server.log_lines import OneLine
from tidegauge_broker.server.long_lived import freeze_what_lives_long
from tidegauge_broker.server.quorum.node_settings import NodeSettings
from tidegauge_broker.server.wire.client_certificates import ClientCertificates
from tidegauge_broker.server.wire.grpc import native_log
from tidegauge_broker.server.wire.sasl_listener import SaslListener

LOG = logging.getLogger("tidegauge.broker")


def identity_of(settings: Values, node: NodeSettings | None = None) -> BrokerIdentity:
    """Return this broker's identity by its settings.

    Args:
        settings: the broker's.
        node: the same as a node of a KRaft cluster; None: it runs in ZooKeeper mode.

    Raises:
        TidegaugeError: INVALID_CONFIG, something necessary is missing or illegal.
    """
    broker_id = settings.integer("broker.id")
    if broker_id < 0:
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, "broker.id is missing: every broker needs an id of its own")
    chosen.require_settings(settings, node)
    listeners = listeners_of(settings)
    ssl_settings = {name: settings[name] for name in settings.table if name.startswith("ssl.")}
    security = security_of(ssl_settings, PLAINTEXT if WITH_TLS.isdisjoint(listeners.protocols.values()) else SSL)
    logins: dict[str, Login] = {}
    for name, protocol in listeners.protocols.items():
        if protocol in WITH_TLS:
            ClientCertificates(name, protocol, settings).context(security)
        if protocol in WITH_SASL:
            sasl = SaslListener(name, settings, lambda *_: None)
            if name in {listeners.inter_broker.name, listeners.grpc_among_brokers.name}:
                logins[name] = sasl.login_of_brokers()
    return BrokerIdentity(broker_id, listeners, settings["broker.rack"], security, logins)


def allow_many_files() -> None:
    """Raise this process's limit of open files as far as it may: each log holds some, and common limits are low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # a system may allow less than its hard limit says
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(identity: BrokerIdentity, settings: Values, node: NodeSettings | None) -> int:
    process = BrokerProcess(identity, settings, node)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, process.stopping.set)
    start = loop.create_task(process.start())
    stopping = loop.create_task(process.stopping.wait())
    await asyncio.wait([start, stopping], return_when=asyncio.FIRST_COMPLETED)
    if not start.done():
        start.cancel()
        await asyncio.wait([start])
        return process.exit_code
    start.result()
    await stopping
    await process.stop()
    return process.exit_code


@click.command(epilog="\b\nSettings (what may be changed while brokers run: alter-config)\n" + "\n".join(help_lines()))
@click.option(
    "--config", type=click.Path(path_type=Path, dir_okay=False, exists=True), help="A server.properties file."
)
@click.option(
    "--environment",
    is_flag=True,
    help="Settings from variables like KAFKA_BROKER_ID, over the file's, as in containers.",
)
@click.option("--override", multiple=True, metavar="KEY=VALUE", help="A setting over the file's; may be repeated.")
@output_option
@directory_option
def broker(config: Path | None, *, environment: bool, override: tuple[str, ...], output: str, directory: Path) -> None:
    """Run one broker in the foreground.

    Settings have Kafka's names; those needed are broker.id, listeners, zookeeper.connect and log.dirs. With
    process.roles=broker it is a node of a KRaft cluster: node.id, listeners, controller.listener.names,
    controller.quorum.bootstrap.servers and log.dirs, which the verb format has formatted.
    """
    del directory  # every verb takes it; a broker's directories are log.dirs
    if not __debug__:
        fail("python -O would switch the replication core's invariants off; run a broker without -O", output)
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(OneLine())
    logging.basicConfig(level=logging.INFO, handlers=[lines])
    chosen.quieten_logs()
    try:
        texts = read_properties(config.read_text(encoding="utf-8")) if config is not None else {}
        if environment:
            texts |= settings_of_environment(os.environ)
        texts |= read_assignments(override, "--override")
        node = kraft_node(texts, socket.gethostname()) if is_kraft(texts) else None
        settings, unknown = (
            parse_broker_settings(texts)
            if node is None
            else parse_broker_settings(as_broker(texts, node), KRAFT_BROKER_SETTINGS)
        )
        identity = identity_of(settings, node)
        allow_many_files()
        keep_freed_memory()
        if identity.security.is_tls:
            native_log.take_over()
        if identity.listeners.added is not None:
            LOG.info("No gRPC listener is set: brokers and gRPC clients use %s", identity.listeners.added)
        for name in unknown if node is None else sorted({*unknown} & {*node.unknown}):
            hint = did_you_mean(name, BROKER_SETTINGS)
            LOG.warning("The setting %s is unknown here and has no effect%s", name, hint)
        freeze_what_lives_long()
        exit_code = asyncio.run(_serve(identity, settings, node))
    except TidegaugeError as problem:
        fail(problem.message, output, code=problem.code, exit_code=EXIT_FAILED)
    except OSError as problem:
        fail(f"The broker can't start: {problem}", output, exit_code=EXIT_FAILED)
    raise SystemExit(exit_code)


if __name__ == "__main__":
    broker()
