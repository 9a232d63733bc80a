"""The properties of the nodes of a cluster in KRaft mode, with Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tidegauge import event_log
from tidegauge.settings import property_line
from tidegauge.settings.parsing import setting_in
from tidegauge.settings.quorum import CONTROLLER_SETTINGS
from tidegauge_client.cluster_file import CONTROLLER_LISTENER, ClusterFile
from tidegauge_client.quorum_file import ControllerEntry, QuorumEntry
from tidegauge_lab.local import layout
from tidegauge_lab.local.broker_settings import IN_KRAFT, LISTENERS, PROFILES_IN_KRAFT, settings_of

BROKER, CONTROLLER = "broker", "controller"
_OF_LISTENER = "listener.name."


def membership_of(quorum: QuorumEntry, node_id: int, role: str) -> dict[str, str]:
    """Return the settings that identify a node and its controllers.

    Args:
        quorum: the cluster's.
        node_id: the node's id.
        role: of its process: ``controller``, or ``broker``, which may be a controller, too.

    Returns:
        the settings; of a broker that is a controller also ``listeners``, which has the controllers' alone.
    """
    found = {
        IN_KRAFT: role,
        "node.id": str(node_id),
        "controller.listener.names": CONTROLLER_LISTENER,
        "controller.quorum.bootstrap.servers": ",".join(quorum.addresses),
    }
    if quorum.is_combined and node_id in quorum.ids:
        found |= {
            IN_KRAFT: f"{BROKER},{CONTROLLER}",
            LISTENERS: f"{CONTROLLER_LISTENER}://{quorum.controller(node_id).address}",
        }
    return found


def controller_properties(entry: ControllerEntry, directory: Path, file: ClusterFile) -> str:
    """Return the text of a controller's properties file.

    Args:
        entry: the controller.
        directory: of the cluster.
        file: the cluster.
    """
    assert file.quorum is not None
    own = of_controllers(settings_of(entry.id, file.settings))
    of_profile = of_controllers(PROFILES_IN_KRAFT[file.profile])
    sections = {
        "This controller; rewritten at every start by `tidegauge up` or `start`.": {
            **membership_of(file.quorum, entry.id, CONTROLLER),
            LISTENERS: f"{CONTROLLER_LISTENER}://{entry.address}",
            "log.dirs": str(layout.controller_data(directory, entry.id)),
            "lab.listener": entry.lab_address,
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


def of_controllers(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for a controller, its own listener's included."""
    return {
        name: text
        for name, text in settings.items()
        if setting_in(CONTROLLER_SETTINGS, name) is not None
        and (not name.startswith(_OF_LISTENER) or name.startswith(f"{_OF_LISTENER}{CONTROLLER_LISTENER.lower()}."))
    }
