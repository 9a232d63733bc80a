"""Access control lists of the image; alterations are the controller's (``ports.AccessLists``).

Source: ``StandardAuthorizer``, ``AclPublisher``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidegauge.cluster_metadata.access_lists import Binding, Filter
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.apis import CREATE_ACLS, DELETE_ACLS
from tidegauge.kafka.kraft.messages.create_acls import AclCreation, CreateAclsRequest
from tidegauge.kafka.kraft.messages.delete_acls import DeleteAclsFilter, DeleteAclsMatchingAcl, DeleteAclsRequest
from tidegauge_broker.security.acls.authorizer import OPERATIONS_IN_KRAFT, AclAuthorizer
from tidegauge_broker.server.acls.access_control import AccessControl, Outcome
from tidegauge_broker.server.acls.image_lists import ImageLists
from tidegauge_broker.server.acls.message_forms import binding_of
from tidegauge_broker.server.cluster.kraft.forwarding import Forwarding
from tidegauge_controller.metadata.image import MetadataImage


class ImageAccessLists(AccessControl):
    """The access control lists of the image.

    Args:
        image: returns the image that is in force.
        forwarding: to the controller.
        authorizer: decides.
    """

    operations = OPERATIONS_IN_KRAFT

    def __init__(self, image: Callable[[], MetadataImage], forwarding: Forwarding, authorizer: AclAuthorizer) -> None:
        super().__init__(authorizer)
        self._image = image
        self._lists = ImageLists(authorizer)
        self._forwarding = forwarding

    async def read_all(self) -> None:
        """Put the lists of the image in force."""
        lists = self._image().access_lists
        while (beside := self._lists.follow_beside(lists)) is not None:
            await beside

    async def create(self, bindings: Sequence[Binding]) -> list[Outcome]:
        """Have entries added; return what became of each, in their order."""
        creations = [
            AclCreation(
                int(pattern.kind),
                pattern.name,
                int(pattern.pattern_type),
                entry.principal,
                entry.host,
                int(entry.operation),
                int(entry.permission),
            )
            for pattern, entry in bindings
        ]
        try:
            response = await self._forwarding.ask(CREATE_ACLS, CreateAclsRequest(creations))
        except TidegaugeError as problem:
            return [Outcome(problem.code, problem.message) for _ in bindings]
        return [Outcome(ErrorCode.of(one.error_code), one.error_message) for one in response.results]

    async def delete(self, filters: Sequence[Filter]) -> list[list[tuple[Binding, Outcome]]]:
        """Have the entries removed that filters match; return each filter's entries."""
        wanted = [
            DeleteAclsFilter(
                int(one.kind),
                one.name,
                int(one.pattern_type),
                one.principal,
                one.host,
                int(one.operation),
                int(one.permission),
            )
            for one in filters
        ]
        response = await self._forwarding.ask(DELETE_ACLS, DeleteAclsRequest(wanted))
        return [[_removed(one) for one in result.matching_acls] for result in response.filter_results]


def _removed(one: DeleteAclsMatchingAcl) -> tuple[Binding, Outcome]:
    return binding_of(one, one.pattern_type), Outcome(ErrorCode.of(one.error_code), one.error_message)
