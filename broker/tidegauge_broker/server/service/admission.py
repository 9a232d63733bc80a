"""The passage of a request through the service's gate, for every wire: the one place that asks the gate about requests.

Rules:
    1. A request that the gate refuses ends as if its connection had failed (``CallRefused``); so does one that gets a
       status in place of a response.
    2. Before its effect, a request that is to fail is not handled, if the wire can form a response that refuses it. If
       it can't, since only the real response has the names, the request is handled and the error put in there.
       If only a part of a request is to fail, the wire takes that part out of it, and puts its error in there.
    3. After its effect, the error is put into the real response. So are values that are no error.
    4. A response that is held exists while it waits, and is released when its connection ends meanwhile.

A wire gives the form of its responses (``ResponseForm``), and ends the call or the connection when ``CallRefused``
arrives. Where responses have no place of their own in time (a stream of pipelined requests), the wire takes the
``Admission`` of each request and finishes its response later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tidegauge_broker.server.service.gate import CallRefused, Gate, GatedRequest, Hold, InjectedError

INJECTED = "injected by the lab"


class ResponseForm(Protocol):
    """A wire's way to put an error into the response to one request."""

    def refusal(self, injected: InjectedError) -> Any:
        """Return a refusal before the effect; None: rule 2 handles it.

        Raises:
            CallRefused: the request changes something, and its response has no place for the error.
        """
        ...

    def with_error(self, response: Any, injected: InjectedError) -> Any:
        """Return the real response with the error, and the rest, in it.

        Raises:
            CallRefused: it has no place for the error.
        """
        ...

    def discard(self, response: Any) -> None:
        """Release what a response holds that is not sent."""


@dataclass(frozen=True, slots=True)
class Admission:
    """A request for which the gate has something in store.

    Attributes:
        form: of the response.
        injected: the error, if it gets one.
        refusal: the response, where the request must not be handled; else None.
        hold: what the response waits for, if anything.
    """

    form: ResponseForm
    injected: InjectedError | None = None
    refusal: Any = None
    hold: Hold | None = None

    async def finish(self, response: Any) -> Any:
        """Return the response to send in place of the service's, when due.

        Raises:
            CallRefused: nothing is sent.
        """
        if self.hold is not None:
            try:
                await self.hold.wait()
            except BaseException:
                self.form.discard(response)
                raise
        if self.injected is None:
            return response
        if self.refusal is not None:
            if response is not self.refusal:
                self.form.discard(response)
            return self.refusal
        if self.injected.status is not None:
            self.form.discard(response)
            raise CallRefused(INJECTED, self.injected.status)
        return self.form.with_error(response, self.injected)


async def admit(gate: Gate, request: GatedRequest, form: ResponseForm) -> Admission | None:
    """Let a request pass the gate after its delays and holds; None: it passes as it is.

    Raises:
        CallRefused: rule 1.
    """
    injected = await gate.admit(request)
    hold = gate.hold_of(request)
    if injected is None:
        return None if hold is None else Admission(form, hold=hold)
    if injected.after_effect or not injected.is_failure:
        return Admission(form, injected, hold=hold)
    if injected.status is not None:
        if hold is not None:
            await hold.wait()
        raise CallRefused(INJECTED, injected.status)
    return Admission(form, injected, form.refusal(injected), hold)


async def through(gate: Gate, request: GatedRequest, form: ResponseForm, handle: Callable[[], Awaitable[Any]]) -> Any:
    """Let a request pass the gate, handle it, and return the response that is to be sent.

    Raises:
        CallRefused: the call ends without a response.
    """
    admission = await admit(gate, request, form)
    if admission is None:
        return await handle()
    return await admission.finish(admission.refusal if admission.refusal is not None else await handle())
