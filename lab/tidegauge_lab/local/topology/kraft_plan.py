"""The controllers of a cluster in KRaft mode: chosen with the first plan, kept by every later one.

Controllers have the ids 3000, 3001, ..., as in Kafka's own test kit, so that no broker's id is ever one of theirs.
Their ports for gRPC are 10000 above their CONTROLLER listeners', or the next free ones. With ``--combined`` the
first brokers are the controllers: they have the brokers' ids, directories and ports for gRPC.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.features import FEATURES, LEVELS, METADATA_VERSION, level_of_release
from tidegauge.kafka.kraft.json_text import uuid_text
from tidegauge.principal import ANONYMOUS, USER, Principal
from tidegauge_broker.metadata_log.formatting import Formatting
from tidegauge_broker.server.quorum.node_properties import random_uuid
from tidegauge_client.cluster_file import BrokerEntry, ClusterFile, security_of_controllers
from tidegauge_client.quorum_file import FIRST_CONTROLLER_ID, ControllerEntry, QuorumEntry
from tidegauge_lab.local import ports
from tidegauge_lab.local.broker_settings import settings_of
from tidegauge_lab.local.topology.kraft_properties import of_controllers
from tidegauge_lab.local.wanted import SIZES, Wanted, WantedQuorum, contradiction

FIRST_CONTROLLER_PORT = 9392
LAB_PORTS_ABOVE = 10_000
NOT_SERVED = ("streams.version",)
"""Features that brokers here support at level 0 alone: a new cluster has them at 0, so that brokers can register."""
OLDEST_METADATA_VERSION = 25
"""The lowest metadata.version with which brokers here can be members (4.0)."""


class KRaftPlan:
    """The plan of a cluster's controllers (``TopologyPlan``)."""

    def complete(
        self, file: ClusterFile, wanted: Wanted, *, taken: Collection[int], free: Callable[[int], bool]
    ) -> tuple[ClusterFile, list[str]]:
        """Return a new cluster's description with its controllers, and notes for the user.

        Raises:
            TidegaugeError: INVALID_REQUEST, a port is busy; INVALID_CONFIG, an unknown feature, level or release, or
                not 1, 3 or 5 controllers.
        """
        asked = wanted.quorum
        count = asked.size(len(file.brokers))
        _check_size(count)
        _check_asked(asked)
        quorum = QuorumEntry(
            cluster_id=uuid_text(random_uuid()),
            controllers=[],
            is_combined=asked.is_combined,
            release_version=asked.release_version or "",
            features=dict(asked.features),
        )
        _check_levels(formatting(quorum, 0, "", is_controller=False).levels())
        used = {*taken, *(port for broker in file.brokers for port in (broker.port, broker.kafka_port))}
        ids = _ids(count, len(file.brokers), is_combined=asked.is_combined)
        chosen, notes = _controller_ports(ids, asked.port, used, free)
        if asked.is_combined:
            controllers = [_combined(broker, port) for broker, port in zip(file.brokers, chosen, strict=False)]
        else:
            lab_wanted = [port + LAB_PORTS_ABOVE for port in chosen]
            of_lab = ports.choose_ports(lab_wanted, taken={*used, *chosen}, free=free)
            if of_lab != lab_wanted:
                notes.append(f"the controllers serve gRPC on {', '.join(map(str, of_lab))}")
            home = Path(file.brokers[0].dir).parent
            controllers = [_entry(home, *one) for one in zip(ids, chosen, of_lab, strict=True)]
        _check_settings([one.id for one in controllers], file.settings, is_combined=asked.is_combined)
        return replace(file, quorum=replace(quorum, controllers=controllers)), notes

    def require_same(self, directory: Path, recorded: ClusterFile, wanted: Wanted) -> None:
        """Refuse another quorum than the one that has the cluster's metadata.

        Raises:
            TidegaugeError: INVALID_REQUEST.
        """
        quorum, asked = recorded.quorum, wanted.quorum
        assert quorum is not None
        settings = {**recorded.settings, **wanted.settings}
        _check_settings(quorum.ids, settings, is_combined=quorum.is_combined)
        count = len(quorum.controllers)
        if asked.controllers is not None and asked.controllers != count:
            raise _kept(
                directory,
                f"has {count} controllers",
                "`tidegauge add-controller` adds one, `tidegauge remove-controller` removes one",
            )
        if asked.is_combined and not quorum.is_combined:
            raise contradiction(directory, "has controllers in processes of their own")
        if asked.port is not None and asked.port != quorum.controllers[0].port:
            raise contradiction(directory, f"has its controllers from port {quorum.controllers[0].port} on")
        if asked.release_version not in {None, quorum.release_version} or (
            asked.features and dict(asked.features) != dict(quorum.features)
        ):
            raise _kept(directory, "was formatted with other features", "they are kept in its metadata")

    def ports_avoided(self, file: ClusterFile) -> set[int]:
        """Return the ports that no broker gets: the controllers'."""
        return set(self.ports_bound(file))

    def ports_bound(self, file: ClusterFile) -> list[int]:
        """Return the ports that the controllers bind."""
        assert file.quorum is not None
        of_lab = [one.lab_port for one in file.quorum.separate]
        return [*(one.port for one in file.quorum.controllers), *of_lab]


def next_controller(
    directory: Path, file: ClusterFile, *, taken: Collection[int], free: Callable[[int], bool] = ports.is_free
) -> ControllerEntry:
    """Return one more controller, with the next id and ports.

    Args:
        directory: the cluster's.
        file: the cluster, whose controllers have processes of their own.
        taken: ports that other clusters have.
        free: whether a port is free.
    """
    assert file.quorum is not None
    last = max(file.quorum.controllers, key=lambda one: one.id)
    used = {*taken, *(port for one in file.brokers for port in (one.port, one.kafka_port))}
    used |= {port for one in file.quorum.controllers for port in (one.port, one.lab_port)}
    [port] = ports.choose_ports([last.port + 1], taken=used, free=free)
    [of_lab] = ports.choose_ports([port + LAB_PORTS_ABOVE], taken={*used, port}, free=free)
    return replace(_entry(directory, last.id + 1, port, of_lab), directory_id="")


def formatting(quorum: QuorumEntry, node_id: int, metadata_directory: str, *, is_controller: bool) -> Formatting:
    """Return the formatting of a node, without the first controllers' initial voters.

    Args:
        quorum: the cluster's.
        node_id: the node's id.
        metadata_directory: its directory of the metadata log.
        is_controller: whether it is a controller.
    """
    return Formatting(
        cluster_id=quorum.cluster_id,
        node_id=node_id,
        metadata_directory=metadata_directory,
        is_controller=is_controller,
        no_initial_voters=True,
        release=quorum.release_version or None,
        features={**dict.fromkeys(NOT_SERVED, 0), **quorum.features},
    )


def _kept(directory: Path, fact: str, instead: str) -> TidegaugeError:
    """Return the error for a change that ``up`` can't make, with the alternative."""
    return TidegaugeError(
        ErrorCode.INVALID_REQUEST,
        f"the cluster in {directory} {fact}, and `tidegauge up` does not change that: {instead}; for another cluster "
        "use another directory (--dir)",
    )


def _check_asked(asked: WantedQuorum) -> None:
    """Refuse a level that a feature does not have, and an empty name of a release, which is not one left out.

    Raises:
        TidegaugeError: INVALID_CONFIG, in Kafka's words with the levels that there are.
    """
    for name, level in asked.features.items():
        feature = FEATURES.get(name)
        if feature is not None and not 0 <= level <= feature.highest:
            text = f"No feature:{name} with feature level {level}: its levels are 0 to {feature.highest}"
            raise TidegaugeError(ErrorCode.INVALID_CONFIG, text)
    if asked.release_version == "":
        level_of_release("")


def _check_levels(levels: Mapping[str, int]) -> None:
    """Refuse a cluster in which no broker here could register.

    Raises:
        TidegaugeError: INVALID_CONFIG.
    """
    for name in NOT_SERVED:
        if levels.get(name, 0) > 0:
            raise TidegaugeError(
                ErrorCode.INVALID_CONFIG,
                f"brokers here support {name} at level 0 alone, not {levels[name]}; leave it out",
            )
    if levels[METADATA_VERSION] < OLDEST_METADATA_VERSION:
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            f"brokers here support metadata.version from {OLDEST_METADATA_VERSION} ({LEVELS[OLDEST_METADATA_VERSION]}) "
            f"on, not {levels[METADATA_VERSION]} ({LEVELS.get(levels[METADATA_VERSION], '?')}): choose a release from "
            "4.0 on",
        )


def _check_settings(controller_ids: Sequence[int], settings: Mapping[str, str], *, is_combined: bool) -> None:
    """Refuse settings that controllers do not have, or by which they would refuse the other nodes.

    Raises:
        TidegaugeError: INVALID_CONFIG.
    """
    for given in () if is_combined else settings:
        scope, _, name = given.partition(":")
        if name and scope.isdecimal() and int(scope) in controller_ids and not of_controllers({name: ""}):
            raise TidegaugeError(
                ErrorCode.INVALID_CONFIG,
                f"{name} is a setting of brokers, and {scope} is a controller: it would have no effect; write it "
                f"without '{scope}:' for all brokers, or with a broker's id",
            )
    _check_super_users(controller_ids, settings)


def _check_super_users(controller_ids: Iterable[int], settings: Mapping[str, str]) -> None:
    """Refuse controllers that would refuse the brokers and one another (KIP-801).

    Raises:
        TidegaugeError: INVALID_CONFIG.
    """
    security = security_of_controllers(settings)
    if security.is_tls and security.login is None and security.certificates is not None:
        return  # who they are depends on the certificates
    them, why = str(ANONYMOUS), "its listener has no SASL, so "
    if security.login is not None:
        them, why = str(Principal(USER, security.login.options.get("username", ""))), ""
    for controller_id in controller_ids:
        own = settings_of(controller_id, settings)
        users = {one.strip() for one in own.get("super.users", "").split(";")}
        if own.get("authorizer.class.name") and them not in users:
            raise TidegaugeError(
                ErrorCode.INVALID_CONFIG,
                f"with authorizer.class.name controller {controller_id} would refuse the brokers and the other "
                f"controllers: {why}they are {them} there, and need CLUSTER_ACTION before "
                f"any access control list exists; add {them} to super.users of the controllers, as in --set "
                f"'{controller_id}:super.users={them};User:admin'",
            )


def _check_size(count: int) -> None:
    if count not in SIZES:
        few = (
            ""
            if count < 1 or count % 2
            else (
                f": with {count} a majority is {count // 2 + 1}, so that no more of them may fail than of {count - 1}"
            )
        )
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            f"a quorum has {', '.join(map(str, SIZES[:-1]))} or {SIZES[-1]} controllers, not {count}{few}",
        )


def _ids(count: int, brokers: int, *, is_combined: bool) -> range:
    """Return the controllers' ids.

    Raises:
        TidegaugeError: INVALID_REQUEST, there are fewer brokers than are to be controllers.
    """
    if not is_combined:
        return range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + count)
    if brokers < count:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"with --combined the first {count} brokers are the controllers, and there would be {brokers}: give "
            f"--brokers {count} or more, or fewer --controllers ({', '.join(map(str, SIZES))})",
        )
    return range(count)


def _controller_ports(
    ids: range, asked: int | None, used: set[int], free: Callable[[int], bool]
) -> tuple[list[int], list[str]]:
    if asked is None:
        wanted = [FIRST_CONTROLLER_PORT + place for place in range(len(ids))]
        chosen = ports.choose_ports(wanted, taken=used, free=free)
        return chosen, [] if chosen == wanted else [f"the controllers get ports {', '.join(map(str, chosen))}"]
    chosen = [asked + place for place in range(len(ids))]
    for controller_id, port in zip(ids, chosen, strict=True):
        owner = f"controller {controller_id}"
        if port in used:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                f"port {port} of {owner} is taken by a broker or another cluster; give "
                "another one with --controller-port",
            )
        ports.require_free(port, owner, option="--controller-port", free=free)
    return chosen, []


def _entry(directory: Path, controller_id: int, port: int, lab_port: int) -> ControllerEntry:
    home = str(directory / f"controller-{controller_id}")
    return ControllerEntry(controller_id, ports.HOST, port, lab_port, home, uuid_text(random_uuid()))


def _combined(broker: BrokerEntry, port: int) -> ControllerEntry:
    """Return a broker as the controller that it is, too."""
    return ControllerEntry(broker.id, broker.host, port, broker.port, broker.dir, uuid_text(random_uuid()))
