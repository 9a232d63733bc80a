"""A guard's questions to the access control lists, and its refusals.

A guard comes before a handler: it refuses a request, or the part of it that the principal may not do, and hands the
rest on. The response is then both. The operations, their order and the errors follow ``KafkaApis``. So does the order
of results: the request's if Kafka keeps it (``merged``), else refusals before or behind the others.

A guard does not rely on its handler: both wires have handlers behind the same guard, and a handler looks at the broker
later than the guard does. A part that the principal may not do never reaches one, even if the handler would refuse it
for another reason, such as a repeated name or a broker that is not the controller; the guard itself gives that error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from tidegauge.cluster_metadata.access_lists import Operation, ResourceType
from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import APIS, message_class
from tidegauge.kafka.kraft.apis import KRAFT_APIS
from tidegauge.with_turns import with_turns
from tidegauge_broker.server.cluster.ports import AccessLists
from tidegauge_broker.server.wire.kafka import error_forms
from tidegauge_broker.server.wire.kafka.request import Context, Handler
from tidegauge_broker.server.wire.kafka.responses import Encoded, Held, Response, settled
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN

BY_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
BY_TOPIC_MESSAGE = "Topic authorization failed."
BY_GROUP_MESSAGE = "Group authorization failed."
BY_CLUSTER_MESSAGE = "Cluster authorization failed."
"""Kafka's own sentences for these errors, where a response has one."""
BY_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
BY_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
BY_TRANSACTION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class Ask(NamedTuple):
    """The questions about one request.

    Attributes:
        acls: the lists.
        context: of the request.
        key: its API.
        form: of a response with an error.
    """

    acls: AccessLists
    context: Context
    key: int
    form: error_forms.Form

    def may(self, operation: Operation, kind: ResourceType, name: str | None, *, logs: bool = True) -> bool:
        """Whether the caller may do an operation with a resource; without a name it may not."""
        api = name_of(self.key)
        return name is not None and self.acls.allows(self.context.caller, operation, kind, name, api, logs=logs)

    def topic(self, operation: Operation, name: str | None, *, logs: bool = True) -> bool:
        """Return whether the caller may do an operation with a topic."""
        return self.may(operation, ResourceType.TOPIC, name, logs=logs)

    def group(self, operation: Operation, name: str | None, *, logs: bool = True) -> bool:
        """Return whether the caller may do an operation with a group."""
        return self.may(operation, ResourceType.GROUP, name, logs=logs)

    def transaction(self, operation: Operation, name: str | None, *, logs: bool = True) -> bool:
        """Return whether the caller may do an operation with a transactional id."""
        return self.may(operation, ResourceType.TRANSACTIONAL_ID, name, logs=logs)

    def cluster(self, operation: Operation, *, logs: bool = True) -> bool:
        """Return whether the caller may do an operation with the cluster."""
        return self.acls.allows_cluster(self.context.caller, operation, name_of(self.key), logs=logs)

    def topics(self, operation: Operation) -> Callable[[str], bool]:
        """Return a cached predicate: whether the caller may do it with a topic."""
        return cache(partial(self.topic, operation))

    def operations(self, kind: ResourceType, name: str) -> int:
        """Return what the caller may do with a resource, as bits (``AuthHelper.authorizedOperations``)."""
        return sum(1 << one for one in self.acls.operations[kind] if self.may(one, kind, name, logs=False))

    def refused(self, request: Any, error: ErrorCode, message: str | None = None) -> Any:
        """Return the response that refuses a request; empty for acks=0."""
        found = error_forms.refusal(self.form, self.key, self.context.version, request, error, message)
        return message_class(self.key, response=True)() if found is None else found


def name_of(key: int) -> str:
    """Return the name of an API that one of the modes has."""
    return (APIS.get(key) or KRAFT_APIS[key]).name


Guard = Callable[[Any, Ask, Handler], Response]


def if_all(
    names: Collection[Any], may: Callable[[Any], bool], allowed: Callable[[], Response], refused: Callable[[], Response]
) -> Response:
    """Return one of two responses, by whether all names are allowed.

    Very many names are asked in several turns.
    """
    if len(names) <= ITEMS_PER_TURN:
        return allowed() if all(map(may, names)) else refused()
    return _if_all_of_many(names, may, allowed, refused)


async def _if_all_of_many(
    names: Iterable[Any], may: Callable[[Any], bool], allowed: Callable[[], Response], refused: Callable[[], Response]
) -> Any:
    async for name in with_turns(names, ITEMS_PER_TURN):
        if not may(name):
            return await settled(refused())
    return await settled(allowed())


class Parts(NamedTuple):
    """The items of a request: those that are allowed, the others, and for each in turn whether it is allowed."""

    allowed: list[Any]
    refused: list[Any]
    verdicts: list[bool]


def parted(items: Iterable[Any], may: Callable[[Any], bool]) -> Parts:
    """Return the items that are allowed, and the others, both in their order."""
    allowed: list[Any] = []
    refused: list[Any] = []
    verdicts: list[bool] = []
    for item in items:
        verdicts.append(may(item))
        (allowed if verdicts[-1] else refused).append(item)
    return Parts(allowed, refused, verdicts)


def merged(verdicts: Sequence[bool], results: Sequence[Any], refusals: Sequence[Any]) -> list[Any]:
    """Return the results in the order of a request's items.

    Args:
        verdicts: whether each item is allowed, in their order.
        results: of those that are allowed.
        refusals: the results of the others. They come last if there is not one result for each allowed item.
    """
    if len(results) != sum(verdicts):
        return [*results, *refusals]
    of_allowed, of_refused = iter(results), iter(refusals)
    return [next(of_allowed if is_allowed else of_refused) for is_allowed in verdicts]


async def changed(response: Response, change: Callable[[Any], None]) -> Any:
    """Change the message of a handler's response when it is there."""
    result = await settled(response)
    message = result.message if isinstance(result, Held) else result
    if not isinstance(message, Encoded):
        change(message)
    return result
