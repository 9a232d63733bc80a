"""The permissions of clients of a controller's listener, by the access control lists of the committed metadata.

Without ``authorizer.class.name`` everyone may do everything. With it, brokers and other controllers need
CLUSTER_ACTION: their principal is one of ``super.users``, since no list exists before the first of them has connected.
Source: ``ControllerApis``, ``StandardAuthorizer``; KIP-801.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tidegauge.cluster_metadata.access_lists import CLUSTER_NAME, Operation, ResourceType
from tidegauge.errors import ErrorCode
from tidegauge.kafka.kraft import apis
from tidegauge.settings import Values
from tidegauge_broker.security.acls.authorizer import AclAuthorizer, Rules
from tidegauge_broker.server.acls.image_lists import ImageLists
from tidegauge_broker.server.quorum.calls import Call, Served
from tidegauge_controller.metadata.image import MetadataImage

OF_CLUSTER: Mapping[int, Operation] = {
    **dict.fromkeys(
        (
            *(apis.FETCH, apis.FETCH_SNAPSHOT, apis.VOTE, apis.BEGIN_QUORUM_EPOCH, apis.END_QUORUM_EPOCH),
            *(apis.UPDATE_RAFT_VOTER, apis.CONTROLLER_REGISTRATION, apis.ENVELOPE, apis.BROKER_REGISTRATION),
            *(apis.BROKER_HEARTBEAT, apis.ALTER_PARTITION, apis.ALLOCATE_PRODUCER_IDS, apis.ASSIGN_REPLICAS_TO_DIRS),
        ),
        Operation.CLUSTER_ACTION,
    ),
    **dict.fromkeys(
        (
            *(apis.UNREGISTER_BROKER, apis.ELECT_LEADERS, apis.ALTER_PARTITION_REASSIGNMENTS, apis.UPDATE_FEATURES),
            *(apis.CREATE_ACLS, apis.DELETE_ACLS, apis.ALTER_USER_SCRAM_CREDENTIALS, apis.ADD_RAFT_VOTER),
            *(apis.REMOVE_RAFT_VOTER, apis.DESCRIBE_CLUSTER),
        ),
        Operation.ALTER,
    ),
    **dict.fromkeys((apis.DESCRIBE_QUORUM, apis.LIST_PARTITION_REASSIGNMENTS, apis.DESCRIBE_ACLS), Operation.DESCRIBE),
    apis.ALTER_CLIENT_QUOTAS: Operation.ALTER_CONFIGS,
}
"""The operation on the cluster that an API needs; those that are absent need something of each topic, or nothing."""


class Authorization:
    """Authorizes the requests at a controller's listener.

    Args:
        values: the controller's settings.
        image: returns the committed image.

    Raises:
        ValueError: ``super.users`` names no principal.
    """

    def __init__(self, values: Values, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        self._lists: ImageLists | None = None
        if values.text("authorizer.class.name"):
            by_default = values.flag("allow.everyone.if.no.acl.found")
            rules = Rules.of(values.text("super.users") or "", allows_without_lists=by_default)
            self._lists = ImageLists(AclAuthorizer(rules))

    @property
    def is_configured(self) -> bool:
        """Whether there are lists in force."""
        return self._lists is not None

    def keep_up(self) -> None:
        """Put the lists of the newest image in force; many changes beside the event loop."""
        if self._lists is not None:
            self._lists.follow_beside(self._image().access_lists)

    @property
    def authorizer(self) -> AclAuthorizer | None:
        """The lists in force; None if everyone may do everything."""
        if self._lists is None:
            return None
        lists = self._image().access_lists
        try:
            self._lists.follow_beside(lists)
        except RuntimeError:  # no event loop runs here: it is the thread of a large request
            self._lists.follow(lists)
        return self._lists.authorizer

    def allows(self, call: Call, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the client of a request may do an operation with a resource."""
        authorizer = self.authorizer
        return authorizer is None or authorizer.allows(call.principal, call.host, operation, kind, name)

    def allows_cluster(self, call: Call, operation: Operation) -> bool:
        """Whether the client of a request may do an operation with the cluster."""
        return self.allows(call, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def refused_topics(self, call: Call, operation: Operation, names: Iterable[str]) -> set[str]:
        """Return the topics for which a request's client lacks an operation."""
        return {name for name in names if not self.allows(call, operation, ResourceType.TOPIC, name)}

    def guarded(self, served: Served) -> Served:
        """Return an API that refuses clients without its permission on the cluster."""
        operation = OF_CLUSTER.get(served.key)
        if operation is None:
            return served

        def handle(call: Call) -> None:
            if self.allows_cluster(call, operation):
                served.handle(call)
            else:
                text = f"Request {operation.name} on the cluster is not authorized for {call.principal}."
                call.refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)

        return served._replace(handle=handle)
