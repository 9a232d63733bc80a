"""The control server without sockets: access, refusals, and the form of errors."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.applications import Starlette

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.control.control_request import MAX_BODY_BYTES, ControlRequest
from tidegauge_lab.control.endpoints import ENDPOINTS
from tidegauge_lab.control.gate import refusal
from tidegauge_lab.control.problems import RefusedError, not_so
from tidegauge_lab.control.server import application, config_of

HOST = {"host": "127.0.0.1:19079"}


class FakeControl:
    """Responds to every endpoint with its name, and notes the requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ControlRequest]] = []
        self.problem: Exception | None = None

    async def close(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        async def serve(asked: ControlRequest) -> dict[str, str]:
            self.asked.append((name, asked))
            if self.problem is not None:
                raise self.problem
            return {"served": name}

        return serve


@dataclass
class Response:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def value(self) -> Any:
        return json.loads(self.body)


async def ask(
    app: Starlette, method: str, path: str, body: bytes | dict[str, Any] = b"", query: str = "", **headers: str
) -> Response:
    """One request as a server hands it in."""
    response = Response()
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            response.status = message["status"]
            response.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            response.body += message.get("body", b"")

    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": method,
        "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in (HOST | headers).items()],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 19079),
    }  # fmt: skip
    await app(scope, receive, send)
    return response


@pytest.fixture
def control() -> FakeControl:
    return FakeControl()


@pytest.fixture
def app(control: FakeControl) -> Starlette:
    return application(control)


async def test_every_endpoint_is_served_by_the_method_of_its_name(app: Starlette, control: FakeControl):
    bodies = {"steps": {"steps": [{"kill": 1}]}, "wait": {"ready": True}}
    values = {"topic": "t", "partition": "0", "group": "g", "target": "1", "verb": "kill", "id": "7"}
    for one in ENDPOINTS:
        path = "/".join(values.get(part[1:-1], "x") if part.startswith("{") else part for part in one.path.split("/"))
        body = bodies.get(one.name, b"") if one.method == "POST" else b""
        if one.needs_body and not body:
            continue  # tried with the rules and the advertised addresses
        response = await ask(app, one.method, path, body)
        assert (response.status, response.value) == (200, {"served": one.name}), one.name
        assert "access-control-allow-origin" not in response.headers


async def test_groups_and_targets_may_hold_slashes_and_colons(app: Starlette, control: FakeControl):
    await ask(app, "GET", "/v1/groups/a/b")
    await ask(app, "POST", "/v1/brokers/coordinator-of:group:a/b/kill")
    assert [asked.path for _, asked in control.asked] == [
        {"group": "a/b"},
        {"target": "coordinator-of:group:a/b", "verb": "kill"},
    ]


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/v1/wait", b"", "needs a body"),
        ("/v1/wait", b"{", "no JSON"),
        ("/v1/wait", b"[]", "an object"),
        ("/v1/wait", b'{"ready": true, "ready": true}', "twice"),
        ("/v1/wait", b'{"ready": true, "timeout_ms": NaN}', "NaN"),
        ("/v1/wait", b'{"redy": true}', "did you mean ready?"),
        ("/v1/wait", b'{"ready": true, "in_sync": []}', "exactly one of"),
        ("/v1/wait", b'{"ready": true, "timeout_ms": -1}', "timeout_ms is 0 or more"),
        ("/v1/wait", b'{"isr": {"t-0": [true]}}', "isr.t-0[0] is a whole number"),
        ("/v1/wait", b'{"leader": {"t-0": {"nott": 1}}}', "no field 'nott'"),
        ("/v1/wait", b'{"group": {"state": "Stable"}}', "group needs 'id'"),
        ("/v1/wait", b'{"group": {"id": "g", "state": "stable"}}', "group.state is one of"),
        ("/v1/steps", b'{"steps": []}', "at least 1 entry, not 0"),
        ("/v1/steps", b'{"steps": ["kill"]}', "steps[0] is an object"),
        ("/v1/reset", b'{"topics": 1}', "topics is true or false"),
        ("/v1/reset", b" " * (MAX_BODY_BYTES + 1), "longer than"),
        ("/v1/wait", b'{"ready": NaN}', "NaN is no JSON"),
        ("/v1/wait", b"[" * 100_000, "no JSON"),
        ("/v1/wait", b'{"ready": true, "timeout_ms": 1e999}', "timeout_ms is a whole number"),
        ("/v1/wait", b'{"ready": true, "timeout_ms": ' + b"9" * 5_000 + b"}", "no JSON"),
        ("/v1/wait", b"\xff\xfe", "no JSON"),
        ("/v1/faults", b'{"rules": [{"disconnect": true, "client_id": "\\ud800"}]}', "surrogates"),
        ("/v1/faults", b'{"rules": [{"disconnect": true, "seed": 9007199254740992}]}', "9007199254740991 or less"),
        ("/v1/faults", b'{"rules": [{"observe": true, "keys": ["Fetchh"]}]}', "near: Fetch"),
        ("/v1/faults", b'{"rules": [{"observe": null}]}', "observe is true or false, not null"),
    ],
)
async def test_what_does_not_fit_the_schema_is_refused_in_words(
    app: Starlette, control: FakeControl, path: str, body: bytes, named: str
):
    response = await ask(app, "POST", path, body)
    assert response.status == 400
    assert response.value["error"]["name"] == "INVALID_REQUEST"
    assert named in response.value["error"]["message"]
    assert control.asked == []


async def test_unknown_fields_of_the_query_and_bodies_that_are_not_taken_are_refused(app: Starlette):
    assert (await ask(app, "GET", "/v1/events", query="aftr=1")).status == 400
    assert (await ask(app, "GET", "/v1/events", query="after=-1")).status == 400
    assert (await ask(app, "GET", "/v1/events", query="after=1&after=2")).status == 400
    assert (await ask(app, "GET", "/v1/events", query="after=" + "9" * 5_000)).status == 400
    assert (await ask(app, "GET", "/v1/cluster", {"a": 1})).status == 400


async def test_the_journal_is_not_asked_for_an_api_that_kafka_does_not_have(app: Starlette):
    """A mistyped name gave an empty list, as if no such request had arrived."""
    refused = await ask(app, "GET", "/v1/requests", query="api=Produse")
    assert refused.status == 400
    assert "near: Produce" in refused.value["error"]["message"]
    assert (await ask(app, "GET", "/v1/requests", query="api=Produce")).status == 200


async def test_a_number_of_the_path_has_a_length(app: Starlette, control: FakeControl):
    await ask(app, "GET", "/v1/faults/" + "9" * 5_000)
    [(_, asked)] = control.asked
    with pytest.raises(RefusedError, match="at most 18 digits"):
        asked.number("id")


async def test_unknown_paths_and_methods_are_json_too(app: Starlette):
    missing = await ask(app, "GET", "/v1/nothing")
    assert (missing.status, missing.value["error"]["name"]) == (404, "NOT_FOUND")
    wrong = await ask(app, "DELETE", "/v1/cluster")
    assert (wrong.status, wrong.value["error"]["name"]) == (405, "METHOD_NOT_ALLOWED")
    assert (await ask(app, "OPTIONS", "/v1/reset")).status == 405, "no preflight of a web page is granted"


@pytest.mark.parametrize(
    ("problem", "status", "name"),
    [
        (TidegaugeError(ErrorCode.INVALID_REQUEST, "wrong"), 400, "INVALID_REQUEST"),
        (TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "none"), 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        (TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, "late"), 408, "REQUEST_TIMED_OUT"),
        (TidegaugeError(ErrorCode.LEADER_NOT_AVAILABLE, "no leader"), 409, "LEADER_NOT_AVAILABLE"),
    ],
)
async def test_errors_of_the_cluster_have_a_status(
    app: Starlette, control: FakeControl, problem: TidegaugeError, status: int, name: str
):
    control.problem = problem
    response = await ask(app, "POST", "/v1/reset")
    assert (response.status, response.value["error"]) == (status, {"name": name, "message": problem.message})


def test_an_idle_connection_is_closed_by_the_client_and_not_by_the_server(app: Starlette):
    """A POST that crosses the server's closing is lost; Java 17's pool keeps a connection for 1200 s."""
    assert config_of(app).timeout_keep_alive > 1200


async def test_a_wait_that_runs_out_says_what_is_true_instead(app: Starlette, control: FakeControl):
    control.problem = not_so("the ISR of t-0 is 1,2", {"t-0": {"isr": [1, 2]}})
    response = await ask(app, "POST", "/v1/wait", {"ready": True})
    assert response.status == 408
    assert response.value["actual"] == {"t-0": {"isr": [1, 2]}}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:32771", "localhost:1", "[::1]:19079", "10.1.2.3:80"])
def test_addresses_and_localhost_are_served_on_every_port(host: str):
    """A container's port is mapped to another one, so the port in Host says nothing."""
    assert refusal({"host": host}, (), "") == (0, "")


@pytest.mark.parametrize("host", ["", "evil.example", "evil.example:19079", "localhost.evil.example"])
def test_a_name_that_another_dns_points_here_is_refused(host: str):
    status, sentence = refusal({"host": host}, (), "")
    assert status == 403
    assert "--control-name" in sentence
    assert refusal({"host": "docker:19079"}, ("Docker",), "") == (0, "")


async def test_web_pages_are_refused_even_with_the_right_host_and_token(control: FakeControl):
    app = application(control, token="secret")  # noqa: S106 - of a test
    good = {"authorization": "Bearer secret"}
    assert (await ask(app, "POST", "/v1/reset", **good)).status == 200
    assert (await ask(app, "POST", "/v1/reset", origin="http://127.0.0.1:19079", **good)).status == 403
    assert (await ask(app, "POST", "/v1/reset", origin="null", **good)).status == 403
    assert len(control.asked) == 1


@pytest.mark.parametrize("given", [{}, {"authorization": "secret"}, {"authorization": "Bearer secrets"}])
async def test_a_token_is_asked_for_by_every_request(control: FakeControl, given: dict[str, str]):
    app = application(control, token="secret")  # noqa: S106 - of a test
    response = await ask(app, "GET", "/v1/cluster", **given)
    assert (response.status, response.value["error"]["name"]) == (401, "UNAUTHORIZED")
    assert control.asked == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
async def test_a_disk_that_is_full_is_no_defect_of_the_server(app: Starlette, control: FakeControl, number: int):
    """It says what can't be written, and what to do."""
    control.problem = OSError(number, os.strerror(number), "/data/tally")
    response = await ask(app, "POST", "/v1/reset")
    assert (response.status, response.value["error"]["name"]) == (409, "KAFKA_STORAGE_ERROR")
    assert f"/data/tally can't be read or written: {os.strerror(number)}" in response.value["error"]["message"]


async def test_another_failure_of_the_system_is_a_defect_all_the_same(app: Starlette, control: FakeControl):
    control.problem = ConnectionResetError(errno.ECONNRESET, "reset")
    with pytest.raises(ConnectionResetError):  # for the log; the server responds before
        await ask(app, "POST", "/v1/reset")


async def test_a_client_that_goes_away_in_the_middle_of_its_body_has_asked_for_nothing(control: FakeControl):
    """Not a word of it in the log either: it is no defect."""
    app = application(control)
    messages = iter([{"type": "http.request", "body": b'{"steps"', "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> dict[str, Any]:
        return next(messages)

    async def send(_: Any) -> None:
        pass

    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": "POST",
        "scheme": "http", "path": "/v1/steps", "raw_path": b"/v1/steps", "query_string": b"", "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in HOST.items()],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 19079),
    }  # fmt: skip
    await app(scope, receive, send)
    assert control.asked == []
