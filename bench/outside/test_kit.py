"""Starts the cluster of one of Kafka's own tests, whose stand-in for Kafka's test kit steers it by stdin and stdout.

``KafkaClusterTestKit.java`` writes a line for each command, its words between tabs: ``set NAME VALUE``,
``feature NAME LEVEL``, ``start BROKERS CONTROLLERS``, ``stop BROKER``, ``restart BROKER``. A start is responded to with
the addresses of brokers and controllers, the cluster's id and the brokers' log directories, the end or start of a
broker with ``done``; what can't be had with ``refused REASON``. The cluster is removed at the end of the input.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from tidegauge.errors import TidegaugeError
from tidegauge.kafka.kraft.features import LATEST
from tidegauge.settings import BROKER_SETTINGS, KRAFT_BROKER_SETTINGS
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.layout import broker_data
from tidegauge_lab.local.wanted import WantedQuorum
from tidegauge_lab.pytest_plugin.cluster import PORT_IS_TAKEN

ABSENT = {"streams.version": "groups of the streams protocol"}
"""Features that a cluster here does not have; tests get one without, and those that need it fail."""
OF_KAFKA = {"auto.create.topics.enable": "true"}
"""Kafka's defaults of settings for which the lab has others."""
TRIES = 5
PORTS, PORTS_EACH = (20_000, 30_000), 24
"""Ports of clusters, and how many each has."""
OF_THE_KIT = frozenset({"process.roles", "node.id", "listeners", "log.dirs", "metadata.log.dir"})
"""Settings that the cluster decides itself."""


class Kit:
    """One test's cluster.

    Args:
        directory: for its files.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._settings = dict(OF_KAFKA)
        self._features: dict[str, int] = {}
        self._cluster: LocalCluster | None = None

    def do(self, command: str, *words: str) -> str | None:
        """Do what a command says; return the response, if it has one.

        Raises:
            TidegaugeError: it can't be done.
        """
        if command == "set":
            self._set(*words)
        elif command == "feature":
            # The kit's own default is a level of metadata.version above the newest stable one.
            self._features[words[0]] = min(int(words[1]), LATEST)
        elif command == "start":
            return self._start(int(words[0]), int(words[1]))
        else:
            assert self._cluster is not None, "the cluster is not started"
            broker_id = int(words[0])
            outcomes = self._cluster.stop(broker_id) if command == "stop" else self._cluster.start(broker_id)
            del outcomes
            return "done"
        return None

    def _set(self, name: str, value: str) -> None:
        """Keep a setting that is known here; Kafka's brokers have others, which are said and left out."""
        known = name.rpartition(":")[2]
        if known in BROKER_SETTINGS or known in KRAFT_BROKER_SETTINGS:
            self._settings[name] = value
        elif known not in OF_THE_KIT:
            print(f"test kit: there is no setting {name} here ({value})", file=sys.stderr)

    def _start(self, brokers: int, controllers: int) -> str:
        made = self._cluster = self._begun(brokers, controllers)
        while (view := made.quorum()) is None:
            time.sleep(0.1)
        directories = [str(broker_data(made.directory, broker_id)) for broker_id in range(brokers)]
        servers, voters = made.kafka_bootstrap_servers, made.file.controllers()
        return "\t".join((",".join(servers), ",".join(voters), view.cluster_id, ",".join(directories)))

    def _begun(self, brokers: int, controllers: int) -> LocalCluster:
        """Start a cluster; another program may take a port at the same moment, so it is tried on other ports, too."""
        features = {name: level for name, level in self._features.items() if name not in ABSENT}
        for number in range(TRIES):
            base = random.randrange(*PORTS, PORTS_EACH)
            quorum = WantedQuorum(controllers=controllers, features=features, port=base + 2 * PORTS_EACH // 3)
            directory = self._directory / f"cluster-{number}"
            made: LocalCluster | None = None
            try:
                made = LocalCluster.create(
                    directory,
                    brokers,
                    "kafka",
                    self._settings,
                    base_port=base,
                    kafka_port=base + PORTS_EACH // 3,
                    mode="kraft",
                    quorum=quorum,
                )
                made.up()
            except TidegaugeError as problem:
                if made is not None:
                    made.down(purge=True)
                if number + 1 == TRIES or not any(said in problem.message for said in PORT_IS_TAKEN):
                    raise
            else:
                return made
        raise AssertionError("the last try returns, or raises")

    def close(self) -> None:
        """Remove the cluster."""
        if self._cluster is not None:
            self._cluster.down(purge=True)


def serve(lines: Iterable[str], kit: Kit) -> None:
    """Do the commands, line by line, and print the responses."""
    for line in lines:
        try:
            response = kit.do(*line.rstrip("\n").split("\t"))
        except TidegaugeError as problem:
            response = f"refused\t{problem.message}".replace("\n", " ")
        if response is not None:
            print(response, flush=True)


def main() -> None:
    """Serve one test."""
    with tempfile.TemporaryDirectory(prefix="test-kit-", ignore_cleanup_errors=True) as directory:
        kit = Kit(Path(directory))
        try:
            serve(sys.stdin, kit)
        finally:
            kit.close()


if __name__ == "__main__":
    main()
