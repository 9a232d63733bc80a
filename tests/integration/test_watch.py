"""`tidegauge watch` with a real cluster: the verb, a button, the live events (docs/watch.md), and a real browser.

The shared cluster; each test brings back what it kills by the page's own button.
"""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from tests.integration.chromium import Page, chromium
from tests.waiting import until

from tidegauge.errors import TidegaugeError
from tidegauge.faults.actions import ACTIONS
from tidegauge.faults.table import FAULTS
from tidegauge_client.cluster_file import ZOOKEEPER_MODE
from tidegauge_client.sync import SyncAdmin
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.processes import ProcessState

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]
AXE = files("axe_core_python") / "axe.min.js"
TIDEGAUGE = str(Path(sys.executable).parent / "tidegauge")
Json = dict[str, Any]


class Watching:
    """A running `tidegauge watch`."""

    @classmethod
    def begin(cls, cluster: LocalCluster, port: str = "0") -> Watching:
        command = [TIDEGAUGE, "watch", "--dir", str(cluster.directory), "--port", port, "-o", "json"]
        return cls(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))

    def end(self) -> None:
        """Also when it has ended."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self.url = json.loads(process.stdout.readline())["url"]
        self.place = self.url.removeprefix("http://").rstrip("/")

    def connection(self) -> closing[http.client.HTTPConnection]:
        return closing(http.client.HTTPConnection(self.place, timeout=150))

    def post(self, action: Json, **headers: str) -> tuple[int, Json]:
        sent = {"Content-Type": "application/json", "Origin": self.url.rstrip("/")} | headers
        with self.connection() as connection:
            connection.request("POST", "/action", json.dumps(action), sent)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def token(self) -> str:
        with self.connection() as connection:
            connection.request("GET", "/")
            page = connection.getresponse().read().decode()
        found = re.search(r'name="tidegauge-token" content="([^"]+)"', page)
        assert found is not None
        return found[1]

    def stream(self) -> Iterator[tuple[str, Any]]:
        """Server-sent events, until the server ends."""
        with self.connection() as connection:
            connection.request("GET", "/events")
            name = ""
            for line in connection.getresponse():
                if line.startswith(b"event: "):
                    name = line[7:].decode().strip()
                elif line.startswith(b"data: "):
                    yield name, json.loads(line[6:])


def follow(stream: Iterator[tuple[str, Any]], view: Json, holds: Callable[[Json], bool]) -> None:
    """Apply what comes in to the view until it holds; ``view["events"]`` collects the events."""
    while not (view and holds(view)):
        name, reported = next(stream)
        if name == "events":
            view.setdefault("events", []).extend(reported)
            continue
        for key, value in reported.items():
            if key in {"brokers", "partitions"}:
                view.setdefault(key, {}).update(value)
            else:
                view[key] = value


@pytest.fixture
def watching(cluster: LocalCluster) -> Iterator[Watching]:
    begun = Watching.begin(cluster)
    try:
        yield begun
    finally:
        begun.end()


def make_topic(cluster: LocalCluster, name: str) -> str:
    """One partition; its first replica, the leader, on broker 2."""
    with SyncAdmin(cluster.bootstrap_servers) as admin:
        admin.create_topic(name, assignment=[[2, 1, 0]])
    until(lambda: _leads(cluster, name), 150, f"broker 2 leads {name}")
    return f"{name}-0"


def _leads(cluster: LocalCluster, name: str) -> bool:
    with SyncAdmin(cluster.bootstrap_servers) as admin:
        info = admin.metadata([name]).topics[name].partitions.get(0)
    return info is not None and info.leader_id == 2


def test_the_kill_button_kills_and_the_events_show_the_new_leader(cluster: LocalCluster, watching: Watching):
    at = make_topic(cluster, "watched")
    key = {"X-Tidegauge-Token": watching.token()}
    stream, view = watching.stream(), {}
    follow(stream, view, lambda view: view.get("partitions", {}).get(at, {}).get("leader") == 2)
    assert [broker["state"] for broker in view["brokers"].values()] == ["up"] * 3
    if cluster.file.mode == ZOOKEEPER_MODE:
        follow(stream, view, lambda view: all(broker["session"] for broker in view["brokers"].values()))

    kill = {"action": "kill", "broker": 2}
    for wrong in ({}, {"X-Tidegauge-Token": "guess"}, key | {"Origin": "http://evil.example"}):
        status, response = watching.post(kill, **wrong)
        assert (status, response["error"]["name"]) == (403, "FORBIDDEN")
    assert cluster.state_of(2) is ProcessState.UP

    assert watching.post(kill, **key) == (200, {"message": "Broker 2 killed"})
    assert cluster.state_of(2) is ProcessState.DOWN
    follow(stream, view, lambda view: "broker 2 is down" in view["waiting"].lower())
    assert re.search(r"its membership of the cluster (ends in [1-4] s at the latest|is about to end)", view["waiting"])
    follow(stream, view, lambda view: view["brokers"]["2"]["state"] == "down")
    follow(stream, view, lambda view: view["partitions"][at]["leader"] == 1)
    follow(stream, view, lambda view: view["waiting"] == "")
    assert view["partitions"][at]["osr"] == [2]
    assert view["partitions"][at]["replicas"]["2"]["old"], "its replica is shown as last seen"
    follow(stream, view, lambda view: any(event["text"] == "kill broker 2" for event in view.get("events", [])))
    follow(stream, view, lambda view: any(event["text"].startswith("elects 1") for event in view["events"]))

    assert watching.post({"action": "start", "broker": 2}, **key) == (200, {"message": "Broker 2 started"})
    follow(stream, view, lambda view: sorted(view["partitions"][at]["isr"]) == [0, 1, 2])
    assert watching.post({"action": "step_fetch", "broker": 2, "partition": at}, **key)[0] == 400, "it is not held"
    assert watching.post({"action": "hold_fetch", "broker": 2, "partition": at}, **key)[0] == 200
    follow(stream, view, lambda view: view["partitions"][at]["replicas"]["2"]["held"])
    status, response = watching.post({"action": "step_fetch", "broker": 2, "partition": at}, **key)
    assert status == 200, response
    assert response["message"].startswith(f"Broker 2 asked broker 1 for {at} from offset 0")
    assert watching.post({"action": "release_fetch", "broker": 2, "partition": at}, **key)[0] == 200
    isolate = {"action": "isolate", "broker": 2, "from": "clients"}
    assert watching.post(isolate, **key) == (200, {"message": "Broker 2: calls from clients: partitioned"})
    follow(stream, view, lambda view: view["brokers"]["2"]["faults"])
    assert watching.post({"action": "heal", "broker": 2}, **key) == (200, {"message": "Broker 2 healed"})

    watching.process.send_signal(signal.SIGINT)
    assert watching.process.wait(150) in {0, 130}, "an open page does not keep it"
    assert list(stream) is not None


def test_a_topic_is_made_and_written_to_from_the_page(cluster: LocalCluster, watching: Watching):
    key = {"X-Tidegauge-Token": watching.token()}
    create = {"action": "create-topic", "topic": "of-the-page", "partitions": 2, "replicas": 3}
    for wrong in ({}, {"X-Tidegauge-Token": "guess"}, key | {"Origin": "http://evil.example"}):
        assert watching.post(create, **wrong)[0] == 403
    assert watching.post(create, **key) == (200, {"message": "Created topic of-the-page"})
    status, response = watching.post(create, **key)
    assert (status, response["error"]["name"]) == (409, "TOPIC_ALREADY_EXISTS")
    write = {"action": "produce", "topic": "of-the-page", "count": 250}
    assert watching.post(write, **key) == (200, {"message": "of-the-page: 250 of 250 records were acknowledged"})
    status, response = watching.post(write | {"topic": "nowhere"}, **key)
    assert (status, response["error"]["name"]) == (409, "UNKNOWN_TOPIC_OR_PARTITION")
    stream, view = watching.stream(), {}
    follow(stream, view, lambda view: "of-the-page-1" in view.get("partitions", {}))
    follow(stream, view, lambda view: sum(view["partitions"][f"of-the-page-{one}"]["high"] for one in (0, 1)) == 250)


def test_a_page_in_a_real_browser(cluster: LocalCluster, watching: Watching, tmp_path: Path):
    with chromium(tmp_path / "profile") as page:
        make_topic(cluster, "another")
        at = make_topic(cluster, "browsed")
        page.open(watching.url)
        text = f"[...document.querySelectorAll('.group')].find(one => one.textContent.startsWith('{at}'))?.textContent"
        page.until(f"({text} || '').includes('leader 2')")
        names_are_shown(page, at)
        sizes_and_colours_fit(page)
        nothing_stands_in_anybodys_way(page)
        a_change_touches_only_its_row(page, cluster, at)
        the_keyboard_suffices(page, cluster, text)
        a_topic_comes_from_the_page(page)
        no_records_are_offered_for_an_internal_topic(page, cluster)
        any_fault_is_set_and_cleared_by_the_form(page)
        assert page.complaints == []
        the_page_finds_a_new_run_of_its_server(page, cluster, watching, text)


def names_are_shown(page: Page, at: str) -> None:
    page.look(1280, 2000, dark=False)  # the tree has no rows below the window (content-visibility)
    until(lambda: any(role == "rowheader" and name.startswith(at) for role, name in page.accessible()))
    reported = page.accessible()
    assert {("button", "Kill Broker 2"), ("button", "Stop Broker 0")} <= set(reported)
    heads = [name.split()[:2] for role, name in reported if role == "columnheader"]
    assert heads == [["Partition"], ["Broker", "0"], ["Broker", "1"], ["Broker", "2"]]
    assert ("combobox", "What to isolate Broker 0 from") in reported
    nameless = [role for role, name in reported if role in {"button", "checkbox", "searchbox", "combobox"} and not name]
    assert nameless == []


def sizes_and_colours_fit(page: Page) -> None:
    papers = set()
    for width in (360, 719, 720, 1280, 1600):
        for dark in (False, True):
            page.look(width, 900, dark=dark, still=True)
            assert page.run("document.documentElement.scrollWidth") <= width, f"{width} px scrolls sideways"
            papers.add(page.run("getComputedStyle(document.body).backgroundColor"))
    assert len(papers) == 2


def nothing_stands_in_anybodys_way(page: Page) -> None:
    """axe-core's rules for contrast, names, roles, landmarks and order, wide and narrow, light and dark."""
    page.run("(() => {" + AXE.read_text() + "})()")
    for width, dark in ((1280, False), (360, True)):
        page.look(width, 900, dark=dark, still=True)
        found = json.loads(page.run("axe.run().then(found => JSON.stringify([found.violations, found.passes.length]))"))
        assert found[0] == []
        assert found[1] > 20, "its rules found something to look at"


def a_change_touches_only_its_row(page: Page, cluster: LocalCluster, at: str) -> None:
    """Differences, not a new page: only rows of partitions that the server sent are touched."""
    page.run("""
        window.touched = new Set();
        window.told = new Set();
        const original = take;
        window.take = (change) => {
            for (const name of Object.keys(change.partitions || {})) window.told.add(name);
            original(change);
        };
        new MutationObserver((changes) => {
            for (const one of changes) {
                const group = (one.target.nodeType === 1 ? one.target : one.target.parentElement).closest('.group');
                if (group) window.touched.add(group.querySelector('.who button').textContent);
            }
        }).observe(document.getElementById('table'),
                   {subtree: true, childList: true, characterData: true, attributes: true});
    """)
    produced = subprocess.run(
        [TIDEGAUGE, "produce", at.rpartition("-")[0], "--count", "5", "--dir", str(cluster.directory)], check=False
    )
    assert produced.returncode == 0
    page.until(f"window.touched.has('{at}')")
    assert page.run("[...window.touched].filter(name => !window.told.has(name))") == []
    assert page.run("window.told.size < document.querySelectorAll('.group').length"), "the other topic is not told of"


def the_keyboard_suffices(page: Page, cluster: LocalCluster, text: str) -> None:
    kill, start = (f"document.querySelector('[aria-label=\"{verb} Broker 2\"]')" for verb in ("Kill", "Start"))
    page.run(f"{kill}.focus()")
    page.press("Enter", 13)
    page.until(f"({text}).includes('leader 1')")
    assert cluster.state_of(2) is ProcessState.DOWN
    assert page.run(f"document.activeElement === {kill}"), "the pressed button keeps the focus"
    assert page.run(f"{kill}.getAttribute('aria-disabled')") == "true"
    page.until("document.getElementById('said').textContent.endsWith(' Broker 2 killed')")
    reported_at = page.run("document.querySelector('#said time').textContent")
    assert re.fullmatch(r"\d\d:\d\d:\d\d", reported_at), "a sentence that stays says when it was told"
    page.press("Tab", 9)
    page.until(f"document.activeElement === {start}")
    page.press("Enter", 13)
    page.until(f"!({text}).includes('OSR')")
    page.until("document.getElementById('said').textContent.endsWith(' Broker 2 started')")


def a_topic_comes_from_the_page(page: Page) -> None:
    page.run("document.getElementById('topic').value = 'typed'")
    page.run("document.querySelector('#create button').click()")
    page.until("[...document.getElementById('records-topic').options].some(one => one.value === 'typed')")
    page.run("document.getElementById('records-topic').value = 'typed'")
    page.run("document.querySelector('#produce button').click()")
    page.until("document.getElementById('said').textContent.endsWith('typed: 100 of 100 records were acknowledged')")


def no_records_are_offered_for_an_internal_topic(page: Page, cluster: LocalCluster) -> None:
    """ReplicaManager.appendToLocalLog refuses records of clients for internal topics, so the page proposes none."""
    with SyncAdmin(cluster.bootstrap_servers) as admin, suppress(TidegaugeError):
        admin.find_coordinator("app")  # it makes the topic, which has no leader yet
    page.until("document.body.textContent.includes('__consumer_offsets-0')")
    offered = page.run("[...document.getElementById('records-topic').options].map(one => one.value)")
    assert "typed" in offered
    assert "__consumer_offsets" not in offered


def any_fault_is_set_and_cleared_by_the_form(page: Page) -> None:
    """The form has a field for each parameter of the chosen fault, whichever is declared, and reports errors."""
    page.run("document.getElementById('faults').open = true")
    said = "document.getElementById('said').textContent"
    press = "document.querySelector('#fault-do button').click()"
    choose = (
        "((name) => {{ const one = document.getElementById('fault'); one.value = name;"
        " one.dispatchEvent(new Event('change')); }})('{}')"
    )
    inside = [kind.name for kind in ACTIONS.values() if kind.room == "broker"]
    assert page.run("[...document.getElementById('fault').options].map(one => one.value)") == [*FAULTS, *inside]
    for kind in FAULTS.values():
        page.run(choose.format(kind.name))
        hints = page.run("[...document.querySelectorAll('#fault-fields .hint')].map(one => one.id)")
        assert hints == [f"fault-{one.name}" for one in kind.parameters]
    page.run(choose.format("inject_disk"))
    page.run("document.getElementById('fault-broker').value = '1'")
    page.run(press)
    page.until(f"{said}.includes('give delay_ms or errno, exactly one of both')")
    assert [one for one in page.complaints if "400 (Bad Request)" not in one] == [], "Chromium reports the rejection"
    page.complaints.clear()
    page.run("document.querySelector('[aria-describedby=fault-delay_ms]').value = '5'")
    page.run("document.querySelector('[aria-describedby=fault-operation]').value = 'sync'")
    page.run(press)
    page.until(f"{said}.includes('Broker 1: sync takes 5 ms')")
    page.run(choose.format("clear_faults"))
    page.run(press)
    page.until(f"{said}.endsWith('Broker 1 cleared of faults')")


def the_page_finds_a_new_run_of_its_server(page: Page, cluster: LocalCluster, watching: Watching, text: str) -> None:
    """It is live again by itself, and presses no buttons with the token of the former run."""
    link = "document.getElementById('link').textContent"
    watching.end()
    page.until(f"{link} === 'connection lost, trying again'")
    again = Watching.begin(cluster, watching.place.rpartition(":")[2])
    try:
        page.until(f"{link} === 'live'")
        page.until(f"({text} || '').includes('leader')")
        page.run("document.querySelector('[aria-label=\"Kill Broker 2\"]').click()")
        page.until("document.getElementById('said').textContent.includes('load it again')")
        assert cluster.state_of(2) is ProcessState.UP
    finally:
        again.end()


def test_no_cluster_and_a_taken_port_are_one_sentence(tmp_path: Path, cluster: LocalCluster):
    for arguments, words in (
        (["--dir", str(tmp_path / "none")], "there is no cluster in"),
        (["--dir", str(cluster.directory), "--port", str(cluster.file.broker(0).port)], "give another with --port"),
    ):
        done = subprocess.run([TIDEGAUGE, "watch", *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert words in done.stderr
        assert done.stderr.count("\n") == 1


def test_brokers_by_address_are_only_looked_at(cluster: LocalCluster):
    at = make_topic(cluster, "looked-at")
    command = [TIDEGAUGE, "watch", "-b", cluster.bootstrap_servers[0], "--port", "0", "-o", "json"]
    watching, view = Watching(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)), {}
    try:

        def roles(view: Json) -> set[str]:
            return {one["role"] for one in view.get("partitions", {}).get(at, {}).get("replicas", {}).values()}

        follow(watching.stream(), view, lambda view: roles(view) == {"leader", "follower"})
        assert view["partitions"][at]["leader"] == 2
        assert view["switchable"] is False
        refused = watching.post({"action": "kill", "broker": 2}, **{"X-Tidegauge-Token": watching.token()})
        assert refused[0] == 403
    finally:
        watching.end()
