"""A node of a KRaft cluster by its settings: directories, roles, voters and the endpoints of its listeners. Pure.

Source: KafkaConfig, QuorumConfig.parseVoterConnections, AbstractKafkaConfig.effectiveAdvertisedControllerListeners.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.host_addresses import dialled_host, host_in
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.listeners import PLAINTEXT, SECURITY_PROTOCOL_IDS, Listener, parse_listeners
from tidegauge.settings import Values
from tidegauge.settings.quorum import parse_node_settings
from tidegauge_controller.raft.values import Endpoint, ReplicaKey, Voter, VoterSet

CONTROLLER = "controller"
_UNKNOWN_HOST = "0.0.0.0"  # noqa: S104 - compared with, never bound
"""The host of a static voter whose address is not known yet: its endpoint is not used."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """A node by its settings.

    Attributes:
        values: the parsed settings.
        unknown: the names that have no effect here.
        bound: the controller listeners to bind.
        endpoints: the addresses that other nodes get.
        static_voters: the voters of ``controller.quorum.voters``; empty: they are in the log.
        bootstrap_servers: where to look for the leader.
        protocols: the security protocol of each of the controllers' listeners, by name.
    """

    values: Values
    unknown: tuple[str, ...]
    bound: tuple[Listener, ...]
    endpoints: tuple[Endpoint, ...]
    static_voters: VoterSet
    bootstrap_servers: tuple[Endpoint, ...]
    protocols: Mapping[str, str]

    @property
    def node_id(self) -> int:
        """The node's id."""
        return self.values.integer("node.id")

    @property
    def is_controller(self) -> bool:
        """Whether the node has the role of a controller."""
        return CONTROLLER in self.values["process.roles"]

    @property
    def two_elections_ms(self) -> int:
        """Maximum time of two elections: within it the other voters have a leader if they can elect one."""
        election_ms = 2 * self.values.integer("controller.quorum.election.timeout.ms")
        return 2 * (self.values.integer("controller.quorum.fetch.timeout.ms") + election_ms)

    @property
    def listener_name(self) -> str:
        """The name of the controllers' listener."""
        return str(self.values["controller.listener.names"][0]).upper()

    @property
    def protocol(self) -> str:
        """The security protocol by which this node reaches controllers."""
        return self.protocols[self.listener_name]

    @property
    def metadata_directory(self) -> str:
        """The directory of the metadata log (AbstractKafkaConfig.metadataLogDir)."""
        return self.values.text("metadata.log.dir") or self._log_directories[0]

    @property
    def directories(self) -> tuple[str, ...]:
        """All directories of the node, in the order of their names (StorageTool.configToLogDirectories)."""
        return tuple(sorted({*self._log_directories, self.metadata_directory}))

    @property
    def _log_directories(self) -> tuple[str, ...]:
        return tuple(self.values["log.dirs"] or (self.values.text("log.dir"),))


def read_node_settings(texts: Mapping[str, str], host_name: str) -> NodeSettings:
    """Return the node that these settings describe.

    Args:
        texts: the settings as texts, by name.
        host_name: this machine's name, for listeners that bind every address.

    Raises:
        TidegaugeError: INVALID_CONFIG, a value is illegal or missing, or two contradict each other.
    """
    values, unknown = parse_node_settings(texts)
    controllers = {name.upper() for name in values["controller.listener.names"]}
    first = str(values["controller.listener.names"][0]).upper()
    is_controller = CONTROLLER in values["process.roles"]
    listeners = parse_listeners(values.text("listeners"), "listeners") if values.text("listeners") else ()
    bound = tuple(listener for listener in listeners if listener.name in controllers) if is_controller else ()
    if is_controller and not bound:
        raise _refusal("No controller listeners found.")
    if is_controller and len(values["process.roles"]) == 1 and len(bound) != len(listeners):
        raise _refusal(
            "The listeners config must only contain KRaft controller listeners from controller.listener.names when "
            "process.roles=controller"
        )
    static = VoterSet.of(_static_voter(text, first) for text in values["controller.quorum.voters"])
    if is_controller and static.voters and values["node.id"] not in static.voters:
        raise _refusal(
            "If process.roles contains the 'controller' role, the node id "
            f"{values['node.id']} must be included in the set of voters controller.quorum.voters={static.ids}"
        )
    servers = [_server(text, first) for text in values["controller.quorum.bootstrap.servers"]]
    return NodeSettings(
        values,
        tuple(unknown),
        bound,
        _endpoints(values, bound, host_name),
        static,
        tuple(servers or [voter.endpoints[0] for voter in static.voters.values() if voter.endpoints]),
        _protocols(values, controllers),
    )


def _protocols(values: Values, controllers: set[str]) -> dict[str, str]:
    """Return each controller listener's protocol: by the map, by name, or PLAINTEXT."""
    pairs = (pair.upper().partition(":") for pair in values["listener.security.protocol.map"])
    given = {name.strip(): protocol.strip() for name, _, protocol in pairs}
    found = {one: given.get(one, one if one in SECURITY_PROTOCOL_IDS else PLAINTEXT) for one in sorted(controllers)}
    for name, protocol in found.items():
        if protocol not in SECURITY_PROTOCOL_IDS:
            raise _refusal(
                f"No security protocol defined for the controllers' listener {name}: listener.security.protocol.map "
                f"has {protocol or 'nothing'} for it; write one of {', '.join(SECURITY_PROTOCOL_IDS)}"
            )
    return found


def _endpoints(values: Values, bound: tuple[Listener, ...], host_name: str) -> tuple[Endpoint, ...]:
    given = values.text("advertised.listeners")
    advertised = {one.name: one for one in parse_listeners(given, "advertised.listeners")} if given else {}
    found = [advertised.get(listener.name, listener) for listener in bound]
    return tuple(Endpoint(one.name, dialled_host(one.host, host_name), one.port) for one in found)


def _static_voter(text: str, listener: str) -> Voter:
    node_text, _, address = text.partition("@")
    endpoint = _server(address, listener)
    known = () if endpoint.host == _UNKNOWN_HOST else (endpoint,)
    return Voter(ReplicaKey(int(node_text)), known)


def _server(address: str, listener: str) -> Endpoint:
    return Endpoint(listener, host_in(address), int(address.rpartition(":")[2]))


def _refusal(sentence: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_CONFIG, sentence)
