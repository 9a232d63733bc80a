"""The page in KRaft mode: the quorum's controllers, fenced brokers and eligible leaders, now and in the past."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.chromium import Page, chromium
from tests.integration.test_watch import TIDEGAUGE, Json, Watching, follow, make_topic
from tests.integration.test_watch_timeline import happened

from tidegauge.faults.schema import vocabulary
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.switches import Plane, Switches
from tidegauge_lab.watch.history import history_of
from tidegauge_lab.watch.recording import recording_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
FENCED = "fenced: it leads nothing, and is in no ISR"


def card(title: str) -> str:
    """Return the expression of the text of a node's card."""
    found = (
        f"[...document.querySelectorAll('#cards .card')].find(one => one.textContent.startsWith({json.dumps(title)}))"
    )
    return f"({found}?.innerText || '')"


def a_quorum() -> Iterator[Json]:
    """Controller 3000 leads, and is killed; 3001 is elected, and fences broker 1, which stays eligible to lead."""
    at: Json = {"topic": "orders", "partition": 0}
    yield happened(0, "controller-3000", "quorum", state="Leader", epoch=1, leader=3000, log_end_offset=0)
    yield happened(0, "controller-3001", "quorum", state="Follower", epoch=1, leader=3000, log_end_offset=0)
    yield happened(0, "controller-3000", "controller", state="elected", controller_epoch=1)
    metadata = {"topic": "__cluster_metadata", "partition": 0}
    yield happened(1, "controller-3000", "high_watermark", old=-1, new=14, **metadata)
    yield happened(2, "broker-1", "broker", state="starting", broker_epoch=-1)
    yield happened(3, "controller-3000", "fencing", broker=1, state="unfenced")
    yield happened(4, "controller-3000", "election", strategy="initial", leader=1, leader_epoch=0, isr=[1], **at)
    yield happened(9, "lab", "fault", action="kill", broker=None, process="controller-3000")
    yield happened(10, "controller-3001", "quorum", state="Candidate", epoch=2, leader=-1, log_end_offset=14)
    yield happened(11, "controller-3001", "quorum", state="Leader", epoch=2, leader=3001, log_end_offset=14)
    yield happened(11, "controller-3001", "controller", state="elected", controller_epoch=2)
    yield happened(15, "controller-3001", "fencing", broker=1, state="fenced")
    yield happened(15, "controller-3001", "election", strategy="offline", leader=-1, leader_epoch=1, isr=[], **at)
    yield happened(15, "controller-3001", "elr", old=[], new=[1], last_known=[1], **at)


def step_to(page: Page, count: int) -> None:
    page.run(f"stepTo({count})")
    page.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))).then(() => 0)")


def test_a_recording_shows_the_quorum_as_it_was(tmp_path: Path) -> None:
    saved = tmp_path / "run.html"
    saved.write_text(recording_of(history_of(a_quorum()).recorded(), "quorum", vocabulary()), encoding="utf-8")
    with chromium(tmp_path / "profile") as page:
        page.open(saved.as_uri())
        page.until(f"{card('Controller 3001')}.includes('leader, epoch 2')")
        assert "down" in page.run(card("Controller 3000"))
        assert FENCED in page.run(card("Broker 1"))
        assert "ZooKeeper" not in page.run("document.getElementById('cards').innerText")
        assert "ELR 1" in page.run("document.querySelector('.group').textContent")
        step_to(page, 7)
        assert "leader, epoch 1\nlog end 14, high watermark 14" in page.run(card("Controller 3000"))
        assert "follower, epoch 1" in page.run(card("Controller 3001"))
        assert FENCED not in page.run(card("Broker 1"))
        assert "ELR" not in page.run("document.querySelector('.group').textContent")
        step_to(page, 9)
        assert "candidate, epoch 2" in page.run(card("Controller 3001"))
        step_to(page, 1)
        assert page.run(card("Controller 3001")) == "", "it has written nothing yet"
        assert page.complaints == []


def test_the_live_page_shows_a_new_leader_a_fenced_broker_and_the_past(
    kraft_cluster: LocalCluster, tmp_path: Path
) -> None:
    make_topic(kraft_cluster, "fenced")
    quorum = kraft_cluster.status()["controller"]
    leader, epoch = quorum["id"], quorum["epoch"]
    begun = Watching.begin(kraft_cluster)
    try:
        with chromium(tmp_path / "profile") as page:
            page.look(1280, 2000, dark=False)
            page.open(begun.url)
            page.until(f"{card(f'Controller {leader}')}.includes('leader, epoch {epoch}')")
            page.until(f"/log end \\d+, high watermark \\d+/.test({card(f'Controller {leader}')})")
            cards = page.run("[...document.querySelectorAll('#cards h3')].map(one => one.firstChild.textContent)")
            controllers = [f"Controller {one}" for one in sorted(kraft_cluster.file.unsecured_ids)]
            assert cards == ["ZooKeeper", *(f"Broker {one}" for one in range(3)), *controllers], "the first is hidden"
            asyncio.run(isolated(kraft_cluster, 1))
            page.until(f"{card('Broker 1')}.includes('{FENCED}')")
            page.until("document.getElementById('events').textContent.includes('fences broker 1')")
            asyncio.run(healed(kraft_cluster, 1))
            page.until(f"!{card('Broker 1')}.includes('{FENCED}')")
            kraft_cluster.kill(leader)
            page.until(f"{card(f'Controller {leader}')}.includes('down')")
            page.until(
                "[...document.querySelectorAll('#cards .card')]"
                f".some(one => /leader, epoch (?!{epoch}\\b)/.test(one.innerText))"
            )
            page.run("stepTo(run.steps.findIndex(one => one.text === 'fences broker 1') + 1)")
            page.until(f"{card('Broker 1')}.includes('{FENCED}')")
            assert f"leader, epoch {epoch}" in page.run(card(f"Controller {leader}")), "it led then"
            assert page.complaints == []
    finally:
        begun.end()
        kraft_cluster.start(leader)


async def isolated(cluster: LocalCluster, broker: int) -> None:
    async with Switches.of_cluster(cluster.file) as switches:
        await switches.isolate(broker, Plane.CONTROLLERS)


async def healed(cluster: LocalCluster, broker: int) -> None:
    async with Switches.of_cluster(cluster.file) as switches:
        await switches.heal(broker)


def test_the_quorum_of_brokers_by_address_is_shown(kraft_cluster: LocalCluster) -> None:
    """Any broker hands the question on (KIP-642); the controllers' processes are elsewhere."""
    command = [TIDEGAUGE, "watch", "-b", kraft_cluster.bootstrap_servers[0], "--port", "0", "-o", "json"]
    watching, view = Watching(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)), {}
    try:
        follow(watching.stream(), view, lambda view: len(view.get("controllers", [])) == 3)
        expected: dict[str, Any] = kraft_cluster.status()["controller"]
        assert (view["controller"], view["controllerEpoch"]) == (expected["id"], expected["epoch"])
        assert sorted(one["role"] for one in view["controllers"]) == ["follower", "follower", "leader"]
        assert all(one["log_end_offset"] > 0 for one in view["controllers"])
    finally:
        watching.end()
