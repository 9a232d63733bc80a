"""A user's request for a cluster, and its refusal if it contradicts the directory's cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from tidegauge.cluster_directory import command_for
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.lazy_dataclasses import dataclass
from tidegauge_client.cluster_file import KRAFT_MODE, MODES, ZOOKEEPER_MODE

MODE_VARIABLE = "TIDEGAUGE_MODE"
SIZES = (1, 3, 5)
"""How many controllers a quorum may have."""
DEFAULT_CONTROLLERS = 3
MOST_CONTROLLERS = max(SIZES)


def mode_by_variable() -> str:
    """Return the default mode of a new cluster: by TIDEGAUGE_MODE, or ZooKeeper's.

    Raises:
        TidegaugeError: INVALID_REQUEST, the variable names none.
    """
    mode = os.environ.get(MODE_VARIABLE) or ZOOKEEPER_MODE
    if mode not in MODES:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST, f"{MODE_VARIABLE} is {mode!r}; a cluster's mode is {' or '.join(MODES)}"
        )
    return mode


@dataclass(frozen=True, slots=True)
class WantedQuorum:
    """A user's request for a quorum of controllers; None if nothing was said.

    Attributes:
        controllers: how many.
        is_combined: whether brokers are to be the controllers.
        release_version: the release whose features are the cluster's.
        features: levels of single features.
        port: of the first controller.
    """

    controllers: int | None = None
    is_combined: bool = False
    release_version: str | None = None
    features: Mapping[str, int] = field(default_factory=dict[str, int])
    port: int | None = None

    def size(self, brokers: int | None) -> int:
        """Return the size of a new quorum: as requested, else three or one.

        Args:
            brokers: how many brokers there are to be, of which some are the controllers; None: nothing was said.
        """
        if self.controllers is not None:
            return self.controllers
        is_small = self.is_combined and brokers is not None and brokers < DEFAULT_CONTROLLERS
        return SIZES[0] if is_small else DEFAULT_CONTROLLERS


@dataclass(frozen=True, slots=True)
class Wanted:
    """A user's request; None if nothing was said."""

    brokers: int | None = None
    profile: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    zookeeper: str | None = None
    base_port: int | None = None
    zookeeper_port: int | None = None
    kafka_port: int | None = None
    kafka_host: str | None = None
    mode: str | None = None
    quorum: WantedQuorum = field(default_factory=WantedQuorum)

    @property
    def mode_of_new(self) -> str:
        """Return a new cluster's mode: as requested, by TIDEGAUGE_MODE, or ZooKeeper's.

        Raises:
            TidegaugeError: INVALID_REQUEST, the variable names none, or the request contradicts the mode.
        """
        mode = self.mode or mode_by_variable()
        self.require_fits(mode)
        return mode

    def require_fits(self, mode: str) -> None:
        """Refuse what a cluster in this mode can't have.

        Raises:
            TidegaugeError: INVALID_REQUEST.
        """
        if mode == KRAFT_MODE and (self.zookeeper is not None or self.zookeeper_port is not None):
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                "a cluster in KRaft mode has no ZooKeeper: its controllers keep the metadata; leave --zookeeper and "
                "--zookeeper-port out",
            )
        if mode == ZOOKEEPER_MODE and self.quorum != WantedQuorum():
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                "a cluster in ZooKeeper mode has no quorum of controllers, to which --controllers, --combined, "
                "--controller-port, --release-version and --feature belong; --kraft starts a cluster that has one",
            )


def contradiction(directory: Path, fact: str) -> TidegaugeError:
    """Return the error for an impossible change of a cluster; ``fact`` describes it."""
    return TidegaugeError(
        ErrorCode.INVALID_REQUEST,
        f"the cluster in {directory} {fact}; that can't be changed: use another directory (--dir), or remove this "
        f"cluster with {command_for(directory, 'down --purge')}",
    )
