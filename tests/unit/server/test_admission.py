"""How a request passes the gate is decided in one place; a wire gives the form of its responses alone."""

from __future__ import annotations

from typing import Any

import pytest

from tidegauge_broker.server.service.admission import admit, through
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.gate import CallRefused, GatedRequest, InjectedError

REQUEST = GatedRequest("Produce", Caller("c", "PLAINTEXT"))


class Gate:
    def __init__(self, injected: InjectedError | None) -> None:
        self.injected = injected
        self.asked: list[GatedRequest] = []
        self.hold: Any = None

    async def admit(self, request: GatedRequest) -> InjectedError | None:
        self.asked.append(request)
        return self.injected

    def hold_of(self, _: GatedRequest) -> Any:
        return self.hold


class Form:
    """Responses are texts; ``must_run`` says that only the real one names what there is."""

    def __init__(self, *, must_run: bool = False) -> None:
        self.must_run = must_run
        self.discarded: list[str] = []

    def refusal(self, injected: InjectedError) -> str | None:
        return None if self.must_run else f"refused with {injected.error}"

    def with_error(self, response: str, injected: InjectedError) -> str:
        return f"{response} with {injected.error}"

    def discard(self, response: str) -> None:
        self.discarded.append(response)


async def passed(injected: InjectedError | None, form: Form) -> tuple[Any, list[str]]:
    """Return the response, and what the service handled."""
    handled: list[str] = []

    async def handle() -> str:
        handled.append("it")
        return "real"

    gate: Any = Gate(injected)
    try:
        response = await through(gate, REQUEST, form, handle)
    except CallRefused as refused:
        response = refused.status
    assert gate.asked == [REQUEST], "the gate is asked once"
    return response, handled


@pytest.mark.parametrize(
    ("injected", "must_run", "response", "is_handled"),
    [
        (None, False, "real", True),
        (InjectedError(3), False, "refused with 3", False),
        (InjectedError(3), True, "real with 3", True),
        (InjectedError(3, after_effect=True), False, "real with 3", True),
        (InjectedError(0, status="ABORTED"), False, "ABORTED", False),
        (InjectedError(0, status="ABORTED"), True, "ABORTED", False),
        (InjectedError(0, after_effect=True, status="ABORTED"), False, "ABORTED", True),
        (InjectedError(0, throttle_time_ms=5), False, "real with 0", True),
    ],
)
async def test_what_becomes_of_a_request(
    injected: InjectedError | None, must_run: bool, response: str, is_handled: bool
) -> None:
    form = Form(must_run=must_run)
    assert await passed(injected, form) == (response, ["it"] * is_handled)
    assert form.discarded == ["real"] * (is_handled and response == "ABORTED")


async def test_a_pipelined_request_is_finished_when_its_response_comes() -> None:
    """One that is refused has its response at once, and what the service gives for it in its place is released."""
    gate: Any = Gate(InjectedError(3))
    form = Form()
    admission = await admit(gate, REQUEST, form)
    assert admission is not None
    assert admission.refusal == await admission.finish("empty") == "refused with 3"
    assert form.discarded == ["empty"]
    gate.injected = InjectedError(3, after_effect=True)
    later = await admit(gate, REQUEST, form)
    assert later is not None
    assert (later.refusal, await later.finish("real")) == (None, "real with 3")
    gate.injected = None
    assert await admit(gate, REQUEST, form) is None


async def test_a_connection_that_is_closed_before_the_effect_waits_for_its_hold() -> None:
    gate: Any = Gate(InjectedError(0, status="UNAVAILABLE"))
    waited: list[bool] = []

    class Hold:
        async def wait(self) -> None:
            waited.append(True)

    gate.hold = Hold()
    with pytest.raises(CallRefused):
        await admit(gate, REQUEST, Form())
    assert waited
