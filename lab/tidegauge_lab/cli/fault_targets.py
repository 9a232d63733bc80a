"""The one broker that a fault inside a broker is for: by its id, or by a role that is resolved once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from tidegauge.errors import TidegaugeError
from tidegauge_client.channels import Channels
from tidegauge_client.cli.common import PartitionType
from tidegauge_client.cluster_file import BootstrapServers
from tidegauge_client.metadata import ClusterInfo, newest_view
from tidegauge_client.quorum_admin import QuorumAdmin, QuorumView
from tidegauge_lab.cli.common import CoordinatedType, TargetType
from tidegauge_lab.local import role_holders, roles
from tidegauge_lab.observation import Observer
from tidegauge_lab.switches import Switches

Target = int | roles.Role
_QUORUM_SECONDS = 5.0
_KEYWORDS = ("target_leader_of", "target_follower_of", "target_coordinator_of", "target_controller")


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an argument and options that name one broker; ``taken_target`` reads them."""
    return click.argument("target_id", type=TargetType(), metavar="[ID]", required=False)(role_options(command))


def role_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name a broker by its role; ``taken_roles`` reads them."""
    decorators = [
        click.option(
            "--leader-of",
            "target_leader_of",
            type=PartitionType(),
            metavar="T-P",
            help="The broker that leads this partition; of __cluster_metadata-0 the active controller (KRaft mode).",
        ),
        click.option(
            "--follower-of",
            "target_follower_of",
            type=PartitionType(),
            metavar="T-P",
            help="A broker that follows there; of __cluster_metadata-0 another voter.",
        ),
        click.option(
            "--coordinator-of",
            "target_coordinator_of",
            type=CoordinatedType(),
            metavar="group:G|transaction:ID|share:G[/T-P]",
            help="The coordinator of this group, transactional id or share partition.",
        ),
        click.option(
            "--controller", "target_controller", is_flag=True, help="The broker that is the active controller."
        ),
    ]
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def taken_target(options: dict[str, Any]) -> Target:
    """Take the target out of a verb's options.

    Raises:
        click.UsageError: there is none, or more than one.
    """
    named = options.pop("target_id")
    return only_target([*([] if named is None else [named]), *taken_roles(options)])


def only_target(found: Sequence[Target]) -> Target:
    """Return the one target that was named.

    Raises:
        click.UsageError: there is none, or more than one.
    """
    if len(found) != 1:
        raise click.UsageError(
            "Name one broker: by ID, --leader-of T-P, --follower-of T-P, "
            f"--coordinator-of {roles.COORDINATED_FORMS} or --controller, or by one such word: leader-of:T-P."
        )
    return found[0]


def taken_roles(options: dict[str, Any]) -> list[Target]:
    """Take the roles that options name out of a verb's options."""
    leader_of, follower_of, coordinated, is_controller = (options.pop(keyword) for keyword in _KEYWORDS)
    found: list[Target] = []
    if leader_of is not None:
        found.append(roles.Role(roles.RoleKind.LEADER, leader_of))
    if follower_of is not None:
        found.append(roles.Role(roles.RoleKind.FOLLOWER, follower_of))
    if coordinated is not None:
        found.append(roles.Role(roles.RoleKind.COORDINATOR, of=coordinated))
    if is_controller:
        found.append(roles.Role(roles.RoleKind.CONTROLLER))
    return found


async def resolved_all(switches: Switches, targets: Sequence[Target]) -> list[int]:
    """Return the brokers that are meant, each once.

    Raises:
        TidegaugeError: no broker has a role.
    """
    return list(dict.fromkeys([await resolved(switches, target) for target in targets]))


async def resolved(switches: Switches, target: Target) -> int:
    """Return the broker that is meant.

    Raises:
        TidegaugeError: no broker has the role.
    """
    if isinstance(target, int):
        return target
    if switches.quorum and roles.is_of_quorum(target):
        return await _in_quorum(switches.quorum, target)
    return broker_with(target, await _metadata(switches, target.topics))


async def _in_quorum(controllers: BootstrapServers, role: roles.Role) -> int:
    """Return the controller that has a role.

    Raises:
        TidegaugeError: none has it.
    """
    try:
        async with QuorumAdmin(controllers, _QUORUM_SECONDS) as admin:
            view: QuorumView | None = await admin.describe()
    except TidegaugeError:
        view = None
    return role_holders.in_quorum(role, view, lambda _: True)


def broker_with(role: roles.Role, said: Mapping[int, ClusterInfo]) -> int:
    """Return the broker that has a role, by what brokers say.

    Raises:
        TidegaugeError: none has it.
    """
    if role.of is not None:
        return role_holders.coordinator_of(said, role.of)
    if role.partition is not None:
        view = role_holders.partition_view(said, role.partition)
        if role.kind is roles.RoleKind.FOLLOWER:
            return role_holders.follower_of(view, role.partition, lambda broker_id: broker_id in said)
        return role_holders.leader_of(view, role.partition)
    return roles.require_controller(newest_view(said).controller_id if said else None)


async def _metadata(switches: Switches, topics: list[str]) -> dict[int, ClusterInfo]:
    channels = Channels(switches.security)
    try:
        observer = Observer(switches.addresses, channels, switches)
        ids = switches.broker_ids
        said = await asyncio.gather(*(observer.metadata(broker_id, topics) for broker_id in ids))
    finally:
        await channels.close()
    return {broker_id: one for broker_id, one in zip(ids, said, strict=True) if one is not None}
