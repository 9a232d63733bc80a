"""The page's server without sockets: files, headers, refusals, buttons, server-sent events (server.py, hub.py)."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults import actions
from tidegauge.faults.actions import WantedAction
from tidegauge.faults.schema import vocabulary
from tidegauge_lab.watch import hub as hub_module
from tidegauge_lab.watch.actions import Action
from tidegauge_lab.watch.facts import BrokerFacts, Facts
from tidegauge_lab.watch.history import History
from tidegauge_lab.watch.hub import Hub
from tidegauge_lab.watch.page_files import SCRIPTS
from tidegauge_lab.watch.server import MAX_ACTION_BYTES, application, listen

PORT = 19080
TOKEN = "secret"  # noqa: S105 - of a test
GOOD = {
    "host": f"127.0.0.1:{PORT}",
    "origin": f"http://127.0.0.1:{PORT}",
    "x-tidegauge-token": TOKEN,
    "content-type": "application/json",
}
Json = dict[str, Any]
KILL = b'{"action":"kill","broker":1}'


class FakeSource:
    def __init__(self) -> None:
        self.facts = Facts("data", [BrokerFacts(1, "127.0.0.1:9092", "up")])
        self.events: list[dict[str, Any]] = []
        self.problem: Exception | None = None
        self.looks = 0
        self.closed = False

    async def look(self) -> Facts:
        self.looks += 1
        if self.problem is not None:
            raise self.problem
        return self.facts

    async def new_events(self) -> list[dict[str, Any]]:
        events, self.events = self.events, []
        return events

    async def close(self) -> None:
        self.closed = True


@dataclass
class Response:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def error(self) -> dict[str, str]:
        return json.loads(self.body)["error"]


async def ask(
    app: Starlette,
    method: str,
    path: str,
    headers: dict[str, str],
    body: bytes = b"",
    enough: Callable[[bytes], bool] = lambda _: False,
) -> Response:
    """One request as a server hands it in; the client leaves when it has enough."""
    response, left, given = Response(), asyncio.Event(), False

    async def receive() -> dict[str, Any]:
        nonlocal given
        if given:
            await left.wait()
            return {"type": "http.disconnect"}
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            response.status = message["status"]
            response.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            response.body += message.get("body", b"")
            if enough(response.body):
                left.set()

    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": method,
        "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", PORT),
    }  # fmt: skip
    await app(scope, receive, send)
    return response


@dataclass
class Site:
    app: Starlette
    hub: Hub
    source: FakeSource
    done: list[Action]


@pytest.fixture
def site() -> Site:
    source, done = FakeSource(), []
    hub = Hub(source)

    async def do(action: Action) -> str:
        assert isinstance(action, WantedAction)
        if action.target == 7:
            raise TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, "there is no broker 7")
        done.append(action)
        return "done"

    return Site(application(hub, do, port=PORT, token=TOKEN), hub, source, done)


async def test_the_page_has_the_token_and_no_other_site_may_frame_or_script_it(site: Site):
    response = await ask(site.app, "GET", "/", {"host": GOOD["host"]})
    assert response.status == 200
    assert b'name="tidegauge-token" content="secret"' in response.body
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert response.headers["cache-control"] == "no-store"
    assert tuple(re.findall(rb'<script src="([^"]+)" defer>', response.body)) == tuple(map(str.encode, SCRIPTS))
    scripts = [(f"/{name}", "text/javascript") for name in SCRIPTS]
    for name, kind in [("/watch.css", "text/css"), ("/lessons.css", "text/css"), *scripts]:
        asset = await ask(site.app, "GET", name, {"host": GOOD["host"]})
        assert asset.status == 200
        assert asset.headers["content-type"].startswith(kind)
    assert (await ask(site.app, "GET", "/index.html", {"host": GOOD["host"]})).status == 404


async def test_the_page_gets_the_vocabulary_that_its_form_is_built_from(site: Site):
    response = await ask(site.app, "GET", "/vocabulary", {"host": GOOD["host"]})
    assert response.status == 200
    assert json.loads(response.body) == vocabulary()


@pytest.mark.parametrize("path", ["/", "/watch.js", "/vocabulary", "/events"])
async def test_by_another_name_nothing_is_read(site: Site, path: str):
    response = await ask(site.app, "GET", path, {"host": f"evil.example:{PORT}"})
    assert response.status == 403
    assert b"secret" not in response.body
    assert site.source.looks == 0


async def test_a_button_does_its_action(site: Site):
    response = await ask(site.app, "POST", "/action", GOOD, KILL)
    assert (response.status, json.loads(response.body)) == (200, {"message": "done"})
    assert site.done == [WantedAction(actions.KILL, 1, {})]


@pytest.mark.parametrize(
    "wrong",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"x-tidegauge-token": "guess"},
        {"content-type": "text/plain"},
        {"host": f"evil.example:{PORT}", "origin": f"http://evil.example:{PORT}"},
    ],
)
async def test_no_other_page_presses_a_button(site: Site, wrong: dict[str, str]):
    response = await ask(site.app, "POST", "/action", GOOD | wrong, KILL)
    assert response.status == 403
    assert response.error["message"]
    assert site.done == []


async def test_reading_methods_change_nothing_and_preflights_get_no_response(site: Site):
    for method in ("GET", "OPTIONS", "PUT"):
        response = await ask(site.app, method, "/action", GOOD, KILL)
        assert response.status == 405
        assert "access-control-allow-origin" not in response.headers
    assert site.done == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
async def test_a_full_disk_beneath_the_cluster_is_said_on_the_page(number: int):
    """It had a traceback in the terminal, and the page said that its server does not respond."""

    async def do(_: Action) -> str:
        raise OSError(number, os.strerror(number), "/data/broker-1.pid")

    app = application(Hub(FakeSource()), do, port=PORT, token=TOKEN)
    response = await ask(app, "POST", "/action", GOOD, KILL)
    assert (response.status, response.error["name"]) == (409, "KAFKA_STORAGE_ERROR")
    assert response.error["message"].startswith(f"/data/broker-1.pid can't be read or written: {os.strerror(number)}")


async def test_a_defect_of_the_server_has_a_sentence_on_the_page_and_a_traceback_in_the_terminal():
    """Errors are JSON: of anything else the page says that its server does not respond."""
    response: list[bytes] = []

    async def do(_: Action) -> str:
        raise ConnectionResetError(errno.ECONNRESET, "reset")

    app = application(Hub(FakeSource()), do, port=PORT, token=TOKEN)
    with pytest.raises(ConnectionResetError):  # for the terminal; the server responds before
        await ask(app, "POST", "/action", GOOD, KILL, lambda body: response.append(body) is None)
    error = json.loads(response[-1])["error"]
    assert error["name"] == "UNKNOWN_SERVER_ERROR"
    assert "ConnectionResetError" in error["message"]


async def test_what_cannot_be_done_is_reported(site: Site):
    response = await ask(site.app, "POST", "/action", GOOD, b'{"action":"kill","broker":7}')
    assert (response.status, response.error["name"]) == (409, "BROKER_NOT_AVAILABLE")
    assert (await ask(site.app, "POST", "/action", GOOD, b'{"action":"dance","broker":1}')).status == 400
    for body in (b"", b"{", b"\xff", b" " * (MAX_ACTION_BYTES + 1)):
        assert (await ask(site.app, "POST", "/action", GOOD, body)).status == 400


async def test_a_cluster_that_is_only_looked_at_has_no_buttons(site: Site):
    app = application(site.hub, None, port=PORT, token=TOKEN)
    response = await ask(app, "POST", "/action", GOOD, KILL)
    assert response.status == 403
    assert "clusters of the lab" in response.error["message"]


async def test_labs_and_stories_are_asked_for_by_the_page_alone(site: Site):
    asked: list[tuple[str, object]] = []

    async def do_lab(value: object) -> Json:
        asked.append(("lab", value))
        return {"message": "up"}

    async def do_story(value: object) -> Json:
        asked.append(("story", value))
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, "no story is being played")

    teaching: Any = SimpleNamespace(do_lab=do_lab, do_story=do_story)
    app = application(site.hub, None, port=PORT, token=TOKEN, teaching=teaching)
    for path in ("/lab", "/story"):
        for wrong in (
            {"origin": "http://evil.example"},
            {"x-tidegauge-token": "guess"},
            {"content-type": "text/plain"},
        ):
            assert (await ask(app, "POST", path, GOOD | wrong, b'{"do":"stop"}')).status == 403
        assert (await ask(app, "GET", path, GOOD)).status == 405
        response = await ask(site.app, "POST", path, GOOD, b'{"do":"stop"}')
        assert (response.status, response.error["name"]) == (403, "FORBIDDEN"), "a cluster that is only looked at"
    assert asked == []
    response = await ask(app, "POST", "/lab", GOOD, b'{"do":"stop"}')
    assert (response.status, json.loads(response.body)) == (200, {"message": "up"})
    response = await ask(app, "POST", "/story", GOOD, b'{"do":"next"}')
    assert (response.status, response.error["message"]) == (400, "no story is being played")
    assert asked == [("lab", {"do": "stop"}), ("story", {"do": "next"})]


async def test_labs_and_pages_are_read_under_this_host_s_name_alone(site: Site):
    host = {"host": GOOD["host"]}
    lessons = json.loads((await ask(site.app, "GET", "/lessons", host)).body)
    assert lessons["labs"][0]["name"] == "acks-all"
    assert json.loads((await ask(site.app, "GET", "/labs/acks-all", host)).body)["number"] == 1
    assert (await ask(site.app, "GET", "/labs/nothing", host)).status == 404
    page = await ask(site.app, "GET", "/docs/watch.md", host)
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert (await ask(site.app, "GET", "/docs/../README.md", host)).status == 404
    for path in ("/lessons", "/labs/acks-all", "/docs/watch.md"):
        assert (await ask(site.app, "GET", path, {"host": f"evil.example:{PORT}"})).status == 403


async def test_a_watcher_gets_the_whole_view_of_another_cluster_and_its_events_alone():
    first, second = FakeSource(), FakeSource()
    second.facts = Facts("other", [BrokerFacts(7, "127.0.0.1:9099", "up")])
    first.events = [{"time_ms": 1, "source": "lab", "kind": "fault", "action": "kill", "process": "broker-1"}]
    second.events = [{"time_ms": 2, "source": "lab", "kind": "fault", "action": "kill", "process": "broker-7"}]
    hub = Hub(first)
    hub.show_beside(lambda: {"lab": None})
    async with aclosing(hub.watch()) as reported:
        begun = asyncio.ensure_future(anext(reported))
        await asyncio.sleep(0)
        await hub.look()
        assert (await begun)[1]["teaching"] == {"lab": None}
        assert [step["text"] for step in (await anext(reported))[1]["steps"]] == ["kill broker 1"]
        hub.follow(second)
        await hub.look()
        name, view = await anext(reported)
        assert (name, view["name"], list(view["brokers"])) == ("view", "other", ["7"])
        assert [step["text"] for step in (await anext(reported))[1]["steps"]] == ["kill broker 7"]
        assert not first.closed, "it is shown again"
        hub.follow(None)
        await hub.look()
        assert (await anext(reported))[1]["name"] == "data"
        again = [step["text"] for step in (await anext(reported))[1]["steps"]]
        assert again == ["kill broker 1"], "its run goes on where it was left"
        assert second.closed
        third = FakeSource()
        third.facts = Facts("again", [])
        hub.settle(third)
        await hub.look()
        assert (await anext(reported))[1]["name"] == "again"
        assert (await anext(reported))[1]["steps"] == []
        assert first.closed, "another one has taken its place"


async def test_server_sent_events_begin_with_the_view(site: Site):
    site.source.events = [{"time_ms": 1, "source": "lab", "kind": "fault", "action": "kill", "process": "broker-1"}]
    looking = asyncio.create_task(site.hub.run())
    try:
        response = await ask(
            site.app, "GET", "/events", {"host": GOOD["host"]}, enough=lambda body: body.count(b"\n\n") >= 2
        )
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
    assert response.headers["content-type"].startswith("text/event-stream")
    view, run = response.body.decode().split("\n\n")[:2]
    assert view.startswith("event: view\ndata: ")
    assert json.loads(view.partition("data: ")[2])["brokers"]["1"]["state"] == "up"
    assert run.startswith("event: history\ndata: ")
    assert json.loads(run.partition("data: ")[2])["steps"][0]["text"] == "kill broker 1"
    assert site.source.closed, "whoever looked closes the source"


async def test_a_watcher_is_sent_differences_and_a_slow_one_only_the_last():
    source = FakeSource()
    hub = Hub(source)
    async with aclosing(hub.watch()) as reported:
        first = asyncio.ensure_future(anext(reported))
        await asyncio.sleep(0)
        await hub.look()
        assert (await first)[0] == "view"
        assert (await anext(reported))[0] == "history"
        for state in ("paused", "down"):
            source.facts = Facts("data", [BrokerFacts(1, "127.0.0.1:9092", state)])
            await hub.look()
        name, change = await anext(reported)
        assert (name, change["brokers"]["1"]["state"], list(change)) == ("change", "down", ["brokers"])
        await hub.close()
        assert [message async for message in reported] == []


async def test_a_look_that_fails_is_shown_over_what_was_known():
    source = FakeSource()
    hub = Hub(source)
    async with aclosing(hub.watch()) as reported:
        first = asyncio.ensure_future(anext(reported))
        await asyncio.sleep(0)
        await hub.look()
        await first
        assert await anext(reported) == ("history", {"base": History().base, "steps": []})
        source.problem = OSError("disk is gone")
        await hub.look()
        assert await anext(reported) == ("change", {"problem": "the cluster could not be looked at: disk is gone"})
        source.problem = None
        await hub.look()
        assert await anext(reported) == ("change", {"problem": ""})


async def test_a_watcher_is_sent_the_run_so_far_then_each_step_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hub_module, "EVENTS_A_LOOK", 3)
    source = FakeSource()
    hub = Hub(source)
    election = {"kind": "controller", "state": "elected", "controller_epoch": 2, "source": "broker-1"}
    moves = [{"kind": "log_end_offset", "old": n, "new": n + 1, "source": "broker-1"} for n in range(6)]
    source.events = [election, *moves]
    numbers = []
    async with aclosing(hub.watch()) as reported:
        first = asyncio.ensure_future(anext(reported))
        await asyncio.sleep(0)
        for _ in range(3):
            await hub.look()
        await first
        name, run = await anext(reported)
        assert name == "history"
        numbers = [step["number"] for step in run["steps"]]
        source.events = moves[:2]
        await hub.look()
        name, steps = await anext(reported)
        assert name == "events"
    assert numbers == [1, 2, 3, 4, 5, 6, 7], "taken in over several looks, and none is lost"
    assert [step["number"] for step in steps] == [8, 9]


async def test_a_watcher_slower_than_the_history_is_long_gets_the_history_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hub_module, "History", lambda: History(steps_kept=2))
    source = FakeSource()
    hub = Hub(source)
    async with aclosing(hub.watch()) as reported:
        first = asyncio.ensure_future(anext(reported))
        await asyncio.sleep(0)
        await hub.look()
        await first
        await anext(reported)
        source.events = [{"kind": "session", "state": f"s{n}", "source": "broker-1"} for n in range(5)]
        await hub.look()
        name, run = await anext(reported)
    assert (name, [step["number"] for step in run["steps"]]) == ("history", [4, 5])
    assert run["base"]["brokers"]["1"]["sessionText"] == "session s2"


async def test_a_quiet_connection_is_kept_open(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hub_module, "QUIET_SECONDS", 0.001)
    async with aclosing(Hub(FakeSource()).watch()) as reported:
        assert await anext(reported) == ("beat", None)


def test_a_taken_port_is_one_sentence():
    with listen(0) as taken, pytest.raises(TidegaugeError, match="give another with --port"):
        listen(taken.getsockname()[1])
