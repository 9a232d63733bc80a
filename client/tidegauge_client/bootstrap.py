"""Where to connect first: ``--bootstrap-server``, else ``TIDEGAUGE_BOOTSTRAP_SERVER``, else ``cluster.json`` in
``--dir``.

The addresses carry their security settings (``BootstrapServers.security``): the ones of ``--command-config``, else,
for the cluster in ``--dir``, those that the cluster was set up with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from tidegauge.cli import BOOTSTRAP_VARIABLE, JAAS_VARIABLE
from tidegauge.cluster_directory import command_for
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.security import PLAIN, Security, TokenProvider, security_of, security_of_files
from tidegauge.settings import read_properties
from tidegauge_client.cluster_file import FILE_NAME, BootstrapServers, load_cluster_file

__all__ = [
    "BootstrapServers",
    "SecurityArguments",
    "connect_to",
    "parse_bootstrap",
    "read_command_config",
    "resolve_bootstrap",
]


def parse_bootstrap(servers: str | Sequence[str], security: Security | None = None) -> BootstrapServers:
    """Read ``host:port[,host:port]``, or several of them; each address once, in the order given.

    Args:
        servers: the addresses.
        security: the security settings; None: taken from ``servers``, if it is a ``BootstrapServers``, else plain text.

    Raises:
        TidegaugeError: INVALID_REQUEST, no address at all or one that is not ``host:port``.
    """
    texts = [servers] if isinstance(servers, str) else list(servers)
    addresses = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    if not addresses:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST, "no bootstrap server was given; write HOST:PORT, for example 127.0.0.1:19092"
        )
    for address in addresses:
        host, separator, port = address.rpartition(":")
        is_port = port.isascii() and port.isdigit() and len(port) <= len("65535") and 0 < int(port) < 2**16
        if not separator or not host or not is_port or (":" in host and not host.startswith("[")):
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                f"'{address}' is not a bootstrap server address; write HOST:PORT, for example 127.0.0.1:19092",
            )
    known = servers if isinstance(servers, BootstrapServers) else BootstrapServers()
    of_all = known.security if security is None else security
    return BootstrapServers(dict.fromkeys(addresses), of_all, known.kafka_listeners)


class SecurityArguments(TypedDict, total=False):
    """How a client connects, with the argument names of aiokafka and kafka-python.

    Attributes:
        security_protocol: PLAINTEXT, SSL or SASL_SSL; without any of these: as ``bootstrap_servers`` says, else
            PLAINTEXT.
        ssl_cafile: PEM certificates of the trusted authorities; without it the system's.
        ssl_certfile: the client's PEM certificate chain, for brokers with ssl.client.auth=required.
        ssl_keyfile: its PEM private key; without it, the key is read from ``ssl_certfile``.
        sasl_mechanism: PLAIN (the default), SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER, for SASL_SSL.
        sasl_plain_username: the user, also for SCRAM.
        sasl_plain_password: the user's password.
        sasl_oauth_token_provider: an object whose ``token()`` returns a token for OAUTHBEARER.
    """

    security_protocol: str
    ssl_cafile: str | Path | None
    ssl_certfile: str | Path | None
    ssl_keyfile: str | Path | None
    sasl_mechanism: str | None
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_oauth_token_provider: TokenProvider | None


def connect_to(servers: str | Sequence[str], arguments: SecurityArguments) -> BootstrapServers:
    """Return the addresses with the arguments' security settings, if any.

    Raises:
        TidegaugeError: INVALID_REQUEST, an address is malformed; INVALID_CONFIG, a file or an argument is invalid.
    """
    return parse_bootstrap(servers, security_of_files(**arguments) if arguments else None)


def read_command_config(path: Path, environment: Mapping[str, str]) -> Security:
    """Read the security settings in a client properties file: ``security.protocol``, ``ssl.*`` and ``sasl.*``.

    The rest is ignored.

    Args:
        path: of the file.
        environment: the process's variables; ``TIDEGAUGE_SASL_JAAS_CONFIG`` is used where the file has none.

    Raises:
        TidegaugeError: INVALID_CONFIG, it can't be read or used.
    """
    try:
        properties = read_properties(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not text"
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, f"--command-config {path} can't be read: {why}") from None
    if JAAS_VARIABLE in environment:
        properties.setdefault("sasl.jaas.config", environment[JAAS_VARIABLE])
    return security_of(properties, properties.get("security.protocol") or PLAIN.protocol)


def resolve_bootstrap(
    bootstrap_server: str | None, directory: Path, environment: Mapping[str, str], command_config: Path | None = None
) -> BootstrapServers:
    """Return the addresses to try, in turn.

    Args:
        bootstrap_server: the addresses given by the user; they take precedence.
        directory: the directory of a cluster that ``tidegauge up`` made; used last.
        environment: the process's variables.
        command_config: a client properties file with security settings.

    Raises:
        TidegaugeError: INVALID_CONFIG, the file is invalid, INVALID_REQUEST, an address is malformed,
            BROKER_NOT_AVAILABLE, none of the three gives an address.
    """
    security = None if command_config is None else read_command_config(command_config, environment)
    reported = bootstrap_server or environment.get(BOOTSTRAP_VARIABLE)
    if reported:
        return parse_bootstrap(reported, security)
    if not (directory / FILE_NAME).exists():
        raise TidegaugeError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"no cluster is known: there is none in {directory}, and neither --bootstrap-server nor "
            f"{BOOTSTRAP_VARIABLE} names one; start one with {command_for(directory, 'up -d')}",
        )
    return parse_bootstrap(load_cluster_file(directory).bootstrap_servers, security)
