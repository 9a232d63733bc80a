"""Forwards requests to coordinators: any broker may be asked, and passes a request on to the coordinator of its key.

It does so once: the other responds itself, with NOT_COORDINATOR if it is not the coordinator either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

import grpc.aio

from tidegauge.errors import ErrorCode
from tidegauge.v1 import common_pb2
from tidegauge_broker.server.service import BrokerService, Caller
from tidegauge_broker.server.service.group_service import FoundCoordinator, KeyType
from tidegauge_broker.server.wire.grpc.callers import caller_of
from tidegauge_controller import wire

Context = grpc.aio.ServicerContext[Any, Any]
_FORWARD_SECONDS = 30.0
"""Timeout of a forwarded request whose client has given none."""
_KINDS = {KeyType.GROUP: "group", KeyType.TRANSACTION: "transactional id"}


class Forwardable(Protocol):
    """A request that says whether it was forwarded."""

    forwarded: bool

    def CopyFrom(self, other_msg: Any, /) -> None:
        """Take over another message's content."""
        ...


Response = TypeVar("Response")


class Forwarding:
    """See the module.

    Args:
        service: the broker's.
        stub_of: gives the stub of the forwarded service at an address.
        listener: name of the listener that serves.
    """

    def __init__(self, service: BrokerService, stub_of: Callable[[str], Any], listener: str) -> None:
        self._service = service
        self._stub_of = stub_of
        self._listener = listener

    async def response(
        self, to: tuple[KeyType, str], method: str, request: Forwardable, response: type[Response], context: Context
    ) -> Response | None:
        """Return the coordinator's response; None if this broker is to respond itself.

        Args:
            to: the kind of coordinator, and its key.
            method: name of the RPC.
            request: its request.
            response: class of its response, which has a status.
            context: of the call; its deadline holds for the forwarded one.
        """
        if request.forwarded:
            return None
        key_type, key = to
        caller = caller_of(context, self._listener)
        found = self._service.groups.find_coordinator(caller, key_type, key)
        make = cast("Any", response)
        if found.endpoint is None:
            return cast("Response", make(status=self.not_found(caller, key_type, key, found)))
        if found.endpoint.broker_id == self._service.broker_id:
            return None
        copy = type(request)()
        copy.CopyFrom(request)
        copy.forwarded = True
        address = self._service.groups.address_of(found.endpoint.broker_id)
        remaining_seconds: Any = context.time_remaining()
        try:
            ask = getattr(self._stub_of(address), method)
            timeout_seconds = _FORWARD_SECONDS if remaining_seconds is None else remaining_seconds
            return cast("Response", await ask(copy, timeout=timeout_seconds))
        except grpc.aio.AioRpcError as problem:
            error = (
                ErrorCode.REQUEST_TIMED_OUT
                if problem.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                else ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
            broker_id = found.endpoint.broker_id
            words = f"The coordinator of {_KINDS[key_type]} {key}, broker {broker_id}, does not respond."
            return cast("Response", make(status=to_status(error, words)))

    def not_found(self, caller: Caller, key_type: KeyType, key: str, found: FoundCoordinator) -> common_pb2.Status:
        """Return why no coordinator can be reached: it has no gRPC listener, or what ``find_coordinator`` says."""
        elsewhere = self._service.groups.coordinator_without_listener(caller, key_type, key)
        if elsewhere is None:
            return to_status(found.error, found.message)
        return to_status(
            ErrorCode.LISTENER_NOT_FOUND,
            f"The coordinator of {_KINDS[key_type]} {key} is broker {elsewhere.broker_id} at {elsewhere.address}, an "
            "Apache Kafka broker without a gRPC listener; Kafka clients and tools reach it there.",
        )


def to_status(error: ErrorCode, message: str = "") -> common_pb2.Status:
    """Convert an error and its message."""
    return common_pb2.Status(error=wire.to_error(error), message=message)
