"""The time line of `tidegauge watch` and a recording, in a real browser (docs/watch.md)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.chromium import Page, chromium
from tests.integration.test_watch import AXE, TIDEGAUGE, Json, Watching, make_topic

from tidegauge.faults.schema import vocabulary
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.watch.history import history_of
from tidegauge_lab.watch.recording import recording_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]
AS_OF = "(document.getElementById('as-of')?.textContent || '')"
LAST = "(document.getElementById('as-of-event')?.textContent || '')"
ROW = "document.querySelector('.group')?.textContent || ''"
TRANSACTION = "document.querySelector('.transaction-card')?.textContent || ''"
WIDTHS = (1440, 768, 390)
# The parts of a view that events have.
SHOWN = """(view) => JSON.stringify({
    controller: [view.controller, view.controllerEpoch],
    brokers: Object.values(view.brokers).map((one) => [one.id, one.state, one.controller, one.leads, one.replicas]),
    partitions: Object.entries(view.partitions).sort().map(([name, at]) => [
        name, at.leader, at.leaderEpoch, [...at.isr].sort(), at.low, at.high,
        Object.entries(at.replicas).map(([id, one]) =>
            [id, one.role, one.epoch, one.logStart, one.lso, one.hw, one.leo, one.epochs, one.old, one.isr])]),
})"""


def happened(seconds: float, source: str, kind: str, **fields: Any) -> Json:
    return {"time_ms": round(1_795_000_000_000 + seconds * 1000), "source": source, "kind": kind, **fields}


def a_failover() -> Iterator[Json]:
    """Broker 1 leads, and coordinates a transaction; it is killed after 10 s, and broker 2 is elected 6 s later."""
    at: Json = {"topic": "<b>orders</b>", "partition": 0}
    log: Json = {"log_start_offset": 0, "high_watermark": 0, "last_stable_offset": 0, "log_end_offset": 0, "epochs": []}
    for broker in (1, 2):
        yield happened(0, f"broker-{broker}", "broker", state="starting", broker_epoch=-1)
    yield happened(1, "broker-1", "election", strategy="initial", leader=1, leader_epoch=0, isr=[1, 2], **at)
    for broker, role in ((1, "leader"), (2, "follower")):
        yield happened(1, f"broker-{broker}", "role", role=role, leader=1, leader_epoch=0, replicas=[1, 2], **log, **at)
    for broker in (1, 2):
        yield happened(5, f"broker-{broker}", "log_end_offset", old=0, new=20, **at)
    begins: Json = {"old": "Empty", "new": "Ongoing", "producer_id": 7, "producer_epoch": 0}
    yield happened(
        6, "broker-1", "transaction", transactional_id="<b>copy</b>", partitions=["<b>orders</b>-0"], **begins
    )
    yield happened(6, "broker-1", "high_watermark", old=0, new=20, **at)
    yield happened(6, "broker-1", "last_stable_offset", old=5, new=5, high_watermark=20, **at)
    yield happened(10, "lab", "fault", action="kill", broker=1, process="broker-1")
    yield happened(16, "broker-2", "election", strategy="offline", leader=2, leader_epoch=1, isr=[2], **at)
    yield happened(20, "broker-2", "truncation", old=20, new=18, log_start_offset=0, **at)


def key(page: Page, name: str) -> None:
    codes = {"ArrowLeft": 37, "ArrowRight": 39, "PageUp": 33, "PageDown": 34, "Home": 36, "End": 35, "Escape": 27}
    page.press(name, codes[name])


def no_rule_of_axe_is_broken(page: Page) -> None:
    found = json.loads(page.run("axe.run().then(found => JSON.stringify([found.violations, found.passes.length]))"))
    assert found[0] == []
    assert found[1] > 15, "its rules found something to look at"


def test_a_recording_is_opened_from_its_file_alone(tmp_path: Path):
    saved = tmp_path / "run.html"
    run = recording_of(history_of(a_failover()).recorded(), "/data/of/somebody", vocabulary())
    assert "/data/of/somebody" not in run
    saved.write_text(run, encoding="utf-8")
    with chromium(tmp_path / "profile") as page:
        page.open(saved.as_uri())
        page.until(f"{AS_OF}.endsWith('20 s after the start')")
        page.until(f"({ROW}).includes('leader 2, epoch 1')")
        assert page.run("document.querySelectorAll('.who b').length") == 0, "a name is no markup"
        page.run("document.getElementById('moment').focus()")
        key(page, "PageDown")
        key(page, "PageDown")
        page.until(f"{LAST} === 'lab kill broker 1'")
        page.until(f"({ROW}).includes('leader 1, epoch 0') && document.querySelector('.state.down') !== null")
        key(page, "Home")
        page.until(f"{LAST} === 'before the first event' && document.querySelector('.group') === null")
        key(page, "End")
        page.until(f"({ROW}).includes('leader 2, epoch 1')")
        page.run("document.getElementById('moment').value = 12000")
        page.run("document.getElementById('moment').dispatchEvent(new Event('input'))")
        page.until(f"{AS_OF}.endsWith('12 s after the start')")
        page.until(f"({ROW}).includes('leader 1, epoch 0')")
        page.until(f"({TRANSACTION}).includes('as last seen')")
        page.run("document.getElementById('moment').value = 7000")
        page.run("document.getElementById('moment').dispatchEvent(new Event('input'))")
        page.until(f"({TRANSACTION}).startsWith('<b>copy</b>Ongoing') && !({TRANSACTION}).includes('as last seen')")
        assert "producer id 7, epoch 0; coordinator: broker 1; begun at" in page.run(TRANSACTION)
        assert page.run(TRANSACTION).endswith("<b>orders</b>-0 LSO 5 of HW 20"), "why readers stand still"
        assert page.run("[...document.querySelectorAll('button')].filter(one => one.checkVisibility()).length") == 4, (
            "the language, a name of a partition, Full screen, and Play: nothing else can be pressed"
        )
        assert page.run("performance.getEntriesByType('resource').length") == 0, "nothing is loaded"
        assert page.complaints == []


@pytest.mark.long
def test_the_time_line_goes_back_through_a_failover_and_is_saved(cluster: LocalCluster, tmp_path: Path):
    at = make_topic(cluster, "rewound")
    watching = Watching.begin(cluster)
    row = (
        f"([...document.querySelectorAll('.group')].find(one => one.textContent.startsWith('{at}'))?.textContent || '')"
    )
    try:
        with chromium(tmp_path / "profile") as page:
            page.open(watching.url)
            page.until(f"{row}.includes('leader 2')")
            verb("produce", "rewound", "--count", "50", cluster=cluster)
            verb("kill", "2", cluster=cluster)
            page.until(f"{row}.includes('leader 1')")
            verb("start", "2", cluster=cluster)
            page.until(f"{row}.includes('leader 1') && !{row}.includes('OSR')")
            verb("produce", "rewound", "--count", "5", "--transactional-id", "copy", cluster=cluster)
            page.until(f"({TRANSACTION}).startsWith('copyCompleteCommit')")
            the_fold_ends_where_the_cluster_is(page)
            the_keyboard_leads_back_and_forth(page, row)
            all_widths_fit(page)
            with watching.connection() as connection:
                connection.request("GET", "/recording")
                saved = connection.getresponse().read()
            assert page.complaints == []
        the_saved_file_shows_the_same(saved, tmp_path, at, watching.token())
        html = tmp_path / "verb.html"
        verb("timeline", "--html", str(html), cluster=cluster)
        the_saved_file_shows_the_same(html.read_bytes(), tmp_path / "of-the-verb", at, watching.token())
    finally:
        watching.end()


def row_of(at: str) -> str:
    """Return an expression for the text of a partition's row."""
    return (
        f"([...document.querySelectorAll('.group')].find(one => one.textContent.startsWith('{at}'))?.textContent || '')"
    )


def verb(*arguments: str, cluster: LocalCluster) -> None:
    subprocess.run([TIDEGAUGE, *arguments, "--dir", str(cluster.directory)], check=True, capture_output=True)


def the_fold_ends_where_the_cluster_is(page: Page) -> None:
    page.until(
        f"((told) => {{ seek(run.steps.length); const ends = told(run.state); seek(0); return ends === told(live); }})"
        f"({SHOWN})"
    )


def the_keyboard_leads_back_and_forth(page: Page, row: str) -> None:
    assert page.run(AS_OF) == "Live"
    page.run("document.getElementById('moment').focus()")
    for wanted in ("elects 1, epoch", "kill broker 2"):  # a start is no fault, and has no mark
        for _ in range(20):
            if wanted in page.run(LAST):
                break
            key(page, "PageDown")
        assert wanted in page.run(LAST)
        assert page.run(AS_OF).startswith("As of ")
        assert page.run(AS_OF).endswith(" ago")
    page.until(f"{row}.includes('leader 2, epoch 0') && {row}.includes('as last seen')")
    assert page.run("document.getElementById('link').textContent") == "not live"
    assert page.run("document.querySelector('[aria-label=\"Kill Broker 0\"]').getAttribute('aria-disabled')") == "true"
    key(page, "ArrowLeft")
    page.until(f"{row}.includes('leader 2, epoch 0') && !{row}.includes('as last seen')")
    key(page, "ArrowRight")
    page.until(f"{row}.includes('as last seen')")
    key(page, "Escape")
    page.until(f"{AS_OF} === 'Live' && {row}.includes('leader 1')")
    assert page.run("document.querySelector('[aria-label=\"Kill Broker 0\"]').getAttribute('aria-disabled')") == "false"
    key(page, "Home")
    page.until(f"{LAST} === 'before the first event'")
    key(page, "End")
    page.until(f"{AS_OF} === 'Live'")


def all_widths_fit(page: Page) -> None:
    page.run("(() => {" + AXE.read_text() + "})()")
    for width in WIDTHS:
        for dark in (False, True):
            page.look(width, 900, dark=dark, still=True)
            for pressed in ("PageDown", "Escape"):
                key(page, pressed)
                assert page.run("document.documentElement.scrollWidth") <= width, f"{width} px scrolls sideways"
                assert page.run("document.getElementById('timeline').getBoundingClientRect().bottom") <= 901
                no_rule_of_axe_is_broken(page)


def the_saved_file_shows_the_same(saved: bytes, directory: Path, at: str, token: str) -> None:
    directory.mkdir(exist_ok=True)
    file = directory / "saved.html"
    file.write_bytes(saved)
    assert token.encode() not in saved
    assert b"127.0.0.1" not in saved
    with chromium(directory / "profile-of-the-file") as page:
        page.open(file.as_uri())
        row = row_of(at)
        page.until(f"{row}.includes('leader 1')")
        page.run("(() => {" + AXE.read_text() + "})()")
        page.look(390, 900, dark=True)
        no_rule_of_axe_is_broken(page)
        assert [one for one in page.complaints if "Content Security Policy" not in one] == []
