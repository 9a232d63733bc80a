"""The properties of the nodes of a cluster in KRaft mode, with Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tidegauge import event_log
from tidegauge.settings import BROKER_SETTINGS, property_line
from tidegauge.settings.quorum import CONTROLLER_SETTINGS
from tidegauge_client.cluster_file import ClusterFile
from tidegauge_client.quorum_file import ControllerEntry, QuorumEntry
from tidegauge_lab.local import layout
from tidegauge_lab.local.broker_settings import settings_of

LISTENER = "CONTROLLER"
QUORUM_PROFILES: dict[str, dict[str, str]] = {
    "fast": {
        "controller.quorum.election.timeout.ms": "100",
        "controller.quorum.fetch.timeout.ms": "500",
        "broker.heartbeat.interval.ms": "200",
        "broker.session.timeout.ms": "4000",
    },
    "kafka": {},
}
"""The timers of a quorum by profile; ``kafka`` has Kafka's defaults."""


def membership_of(quorum: QuorumEntry) -> dict[str, str]:
    """Return the settings by which a node finds the controllers."""
    return {
        "controller.listener.names": LISTENER,
        "controller.quorum.bootstrap.servers": ",".join(quorum.addresses),
    }


def controller_properties(entry: ControllerEntry, directory: Path, file: ClusterFile) -> str:
    """Return the text of a controller's properties file.

    Args:
        entry: the controller.
        directory: of the cluster.
        file: the cluster.
    """
    assert file.quorum is not None
    own = known_to(CONTROLLER_SETTINGS, settings_of(entry.id, file.settings))
    of_profile = known_to(CONTROLLER_SETTINGS, QUORUM_PROFILES[file.profile])
    sections = {
        "This controller; rewritten at every start by `tidegauge up` or `start`.": {
            "process.roles": "controller",
            "node.id": str(entry.id),
            "listeners": f"{LISTENER}://{entry.address}",
            **membership_of(file.quorum),
            "listener.security.protocol.map": f"{LISTENER}:PLAINTEXT",
            "log.dirs": str(layout.controller_data(directory, entry.id)),
            "event.log.file": str(directory / layout.LOGS / event_log.file_name(f"controller-{entry.id}")),
        },
        f"Profile {file.profile}.": {key: value for key, value in of_profile.items() if key not in own},
        "Given with --set.": own,
    }
    return "\n".join(
        f"# {title}\n" + "".join(property_line(key, value) for key, value in lines.items())
        for title, lines in sections.items()
        if lines
    )


def known_to(table: Mapping[str, object], settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that a kind of node has."""
    return {name: text for name, text in settings.items() if name in table}


def is_known(name: str) -> bool:
    """Return whether a broker or a controller in KRaft mode has this setting."""
    return name in BROKER_SETTINGS or name in CONTROLLER_SETTINGS
