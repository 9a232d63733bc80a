"""The permissions of principals, for every wire; a refusal is a line in the audit log.

Rule: a refusal that only filters what a response lists is not logged.
Source: ``AclAuthorizer``, ``AuthHelper``; ``kafka.authorizer.logger``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from tidegauge.cluster_metadata.access_lists import (
    CLUSTER_NAME,
    Operation,
    Pattern,
    PatternType,
    ResourceType,
    camel,
)
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.settings import Values
from tidegauge_broker.security.acls.authorizer import OPERATIONS, AclAuthorizer, Rules

if TYPE_CHECKING:  # the package of the caller imports the settings, which import the lists
    from tidegauge_broker.server.service.caller import Caller

AUDIT = logging.getLogger("tidegauge.authorizer")
CLASS = "authorizer.class.name"
NAMES = ("kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer")


class Outcome(NamedTuple):
    """The outcome of creating or deleting an entry."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def authorizer_of(settings: Values) -> AclAuthorizer | None:
    """Return the authorizer that settings ask for; None: without one everything is allowed.

    Raises:
        TidegaugeError: INVALID_CONFIG, ``super.users`` is malformed.
    """
    if not settings.text(CLASS):
        return None
    try:
        rules = Rules.of(
            settings.text("super.users"), allows_without_lists=settings.flag("allow.everyone.if.no.acl.found")
        )
    except ValueError as problem:
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG, f"Invalid value for configuration super.users: {problem}"
        ) from None
    return AclAuthorizer(rules)


class AccessControl:
    """Asks the authorizer, and logs what it refuses.

    Args:
        authorizer: decides, by the lists that it has been given.

    Attributes:
        operations: that there are for each kind of resource.
    """

    operations: Mapping[ResourceType, tuple[Operation, ...]] = OPERATIONS

    def __init__(self, authorizer: AclAuthorizer) -> None:
        self.authorizer = authorizer

    def allows(
        self, caller: Caller, operation: Operation, kind: ResourceType, name: str, api: str, *, logs: bool = True
    ) -> bool:
        """Whether a caller may do an operation with a resource; a refusal is logged."""
        allowed = self.authorizer.allows(caller.principal, caller.host, operation, kind, name)
        if not allowed and logs:
            _audit(caller, operation, Pattern(kind, name), api)
        return allowed

    def allows_cluster(self, caller: Caller, operation: Operation, api: str, *, logs: bool = True) -> bool:
        """Return whether a caller may do an operation with the cluster."""
        return self.allows(caller, operation, ResourceType.CLUSTER, CLUSTER_NAME, api, logs=logs)

    def allows_somewhere(self, caller: Caller, operation: Operation, kind: ResourceType, api: str) -> bool:
        """Whether a caller may do an operation with any resource of a kind; a refusal is logged."""
        allowed = self.authorizer.allows_somewhere(caller.principal, caller.host, operation, kind)
        if not allowed:
            _audit(caller, operation, Pattern(kind, "NONE", PatternType.UNKNOWN), api)
        return allowed


def _audit(caller: Caller, operation: Operation, pattern: Pattern, api: str) -> None:
    AUDIT.info(
        "Principal = %s is Denied Operation = %s from host = %s on resource = %s for request = %s "
        "with resourceRefCount = 1",
        caller.principal,
        camel(operation.name),
        caller.host,
        pattern,
        api,
    )
