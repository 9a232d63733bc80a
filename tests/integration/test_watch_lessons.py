"""Labs and stories on the page of `tidegauge watch`, with clusters of their own, in a real browser (docs/watch.md)."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.chromium import Page, chromium
from tests.integration.test_watch import AXE, TIDEGAUGE, Watching

from tidegauge_lab.labs.running import lab_in

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]
STORY = """\
title: One broker, one record.
teaches: A record of a partition with one replica is committed at once.
rule: The high watermark is the smallest log end offset over the ISR.
cluster: {brokers: 1}
topics:
  - {name: story, assignment: [0]}
steps:
  - produce: m1
    note: nobody else has to copy it
  - expect: {leader: 0, leo: {0: 1}, hw: {0: 1}}
"""
SAID = "document.querySelector('.lesson-said').textContent"
STATE = "document.querySelector('.story-state').textContent"
STEPS = "[...document.querySelectorAll('.step')].map(one => one.className.split(' ')[1])"


@contextmanager
def watching(*options: str) -> Iterator[Watching]:
    """Run the verb on free ports; an end by Ctrl-C takes a story's cluster down."""
    begun = Watching(
        subprocess.Popen([TIDEGAUGE, "watch", "--port", "0", "-o", "json", *options], stdout=subprocess.PIPE, text=True)
    )
    try:
        yield begun
        begun.process.send_signal(signal.SIGINT)
        assert begun.process.wait(150) == 130
    finally:
        begun.end()


def button(text: str) -> str:
    return f"[...document.querySelectorAll('#lesson button')].find(one => one.textContent === '{text}')"


def is_able(text: str) -> str:
    return f"{button(text)}?.getAttribute('aria-disabled') === 'false' && !{button(text)}.hidden"


def write_story(tmp_path: Path, text: str = STORY) -> str:
    path = tmp_path / "one-record.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def gone(cluster: str) -> bool:
    """Whether nothing of a story's cluster is there any more, neither files nor processes."""
    found = subprocess.run(["pgrep", "-f", cluster], capture_output=True, check=False)
    return found.returncode == 1 and not Path(cluster).parent.exists()


def test_a_story_is_played_step_by_step_beside_its_cluster(tmp_path: Path):
    """Nothing happens before it is asked for; each step then reports its action, its expectation, and that it holds."""
    story = write_story(tmp_path)
    with (
        watching("--dir", str(tmp_path / "none"), "--scenario", story) as begun,
        chromium(tmp_path / "profile") as page,
    ):
        page.look(1440, 900, dark=False)
        page.open(begun.url)
        page.until(f"document.querySelector('.story-state') && {STATE}.startsWith('2 steps')")
        page.until("document.querySelector('.who button')?.textContent === 'story-0'")
        assert page.run(STEPS) == ["next", "later"]
        page.run(f"{button('Next step')}.focus()")
        page.press("Enter", 13)
        page.until(f"{STEPS}.join() === 'held,next'")
        page.until("document.querySelector('.group .bar-text').textContent.includes('LEO 1')")
        text = page.run("document.querySelector('.step.held').textContent")
        assert "Produce m1 with acks=all" in text
        assert "nobody else has to copy it" in text
        assert "0: 1/1*" in text
        page.press("n", 78)
        page.until(f"{STATE}.startsWith('The story is over: all 3 expectations held')")
        assert "Expected, and it holds:leader 0" in page.run("document.querySelector('.step:last-child').textContent")
        assert page.complaints == []
        cluster = str(page.run("view.teaching.story.directory"))
        assert Path(cluster).is_dir()
    assert gone(cluster), "the end of the page is the end of the story"


@pytest.mark.long
def test_a_story_that_fails_leaves_its_cluster_and_the_page_says_why(tmp_path: Path):
    story = write_story(tmp_path, STORY.replace("hw: {0: 1}", "hw: {0: 7}"))
    with (
        watching("--dir", str(tmp_path / "none"), "--scenario", story) as begun,
        chromium(tmp_path / "profile") as page,
    ):
        page.look(1440, 900, dark=False)
        page.open(begun.url)
        page.until(is_able("Play on"))
        page.run(f"{button('Play on')}.click()")
        page.until(f"{STATE}.startsWith('Failed at step 2 of 2')")
        problem = page.run("document.querySelector('#lesson .problem').textContent")
        assert "the HW of broker 0 is 1, not 7" in problem
        assert "then play again or end" in problem
        assert page.run("document.querySelector('.state.up') !== null"), "one can look at it"
        cluster = str(page.run("view.teaching.story.directory"))
        page.run(f"{button('End')}.click()")
        page.until(is_able("Play step by step"))
        assert gone(cluster)
        page.until("document.getElementById('problem').textContent.includes('there is no cluster in')")
        page.run(f"{button('Play step by step')}.click()")
        page.until(is_able("Next step"))


@pytest.mark.long
def test_a_shipped_story_with_its_tables_fits_in_every_window(tmp_path: Path):
    none = str(tmp_path / "none")
    with watching("--dir", none, "--scenario", "walkthrough-two-replicas") as begun, chromium(tmp_path / "p") as page:
        page.look(1440, 900, dark=False)
        page.open(begun.url)
        page.until(is_able("Play on"))
        page.run(f"{button('Play on')}.click()")
        page.until(f"{STATE}.startsWith('The story is over: all 28 expectations held')")
        tables = page.run("[...document.querySelectorAll('.step table')].map(one => one.rows.length)")
        assert tables == [6, 6, 6]
        fits_and_stands_in_nobodys_way(page)
        assert page.complaints == []


@pytest.mark.long
def test_a_lab_is_started_checked_and_stopped_on_the_page(tmp_path: Path):
    """From the question to the cluster's own check, by the page and by commands in a terminal; another lab follows."""
    directory = tmp_path / "data"
    options = ("--dir", str(directory), "--lab", "high-watermark")
    with watching(*options) as begun, chromium(tmp_path / "profile") as page:
        page.look(1440, 900, dark=False)
        page.open(begun.url)
        page.until(is_able("Check"))
        page.until("document.querySelector('.who button')?.textContent === 'orders-0'")
        assert (
            page.run("document.getElementById('lesson-title').textContent") == "3. Why can't I read what I just wrote?"
        )
        assert page.run("[...document.querySelectorAll('#lesson details')].map(one => one.open)") == [False, False]
        assert f"export TIDEGAUGE_DIR={directory}" in page.run("document.querySelector('.bench').textContent")
        the_prediction_is_kept(page, begun.url)
        the_check_is_the_command_line_s(page, directory)
        commands = page.run("[...document.querySelectorAll('.steps pre code.language-sh')].map(one => one.textContent)")
        assert commands[0].startswith("tidegauge hold-fetch")
        checked = next(place for place, one in enumerate(commands) if "lab check" in one)
        assert not any("lab start" in one for one in commands), "the cluster is there"
        subprocess.run(
            ["bash", "-e", "-c", "\n".join(commands[: checked + 1])],
            env={"PATH": f"{Path(TIDEGAUGE).parent}:/usr/bin:/bin", "TIDEGAUGE_DIR": str(directory)},
            cwd=tmp_path,
            capture_output=True,
            check=True,
        )
        page.run(f"{button('Check')}.click()")
        page.until("document.querySelector('.findings + .lesson-said').textContent.startsWith('high-watermark: done.')")
        assert page.run("document.querySelectorAll('.findings .no').length") == 0
        fits_and_stands_in_nobodys_way(page)
        page.look(1440, 900, dark=False)
        page.run(f"{button('Stop, and delete its cluster')}.click()")
        page.until(is_able("Start this lab"))
        assert lab_in(directory) is None
        page.run(
            "((one) => { one.value = 'lab-unclean-election'; one.dispatchEvent(new Event('change')); })"
            "(document.getElementById('choice'))"
        )
        page.until("document.getElementById('lesson-title').textContent.startsWith('6. ')")
        page.until(is_able("Start this lab"))
        page.run(f"{button('Start this lab')}.click()")
        page.until(f"{SAID} === 'The cluster of lab unclean-election is up'")
        page.until(is_able("Check"))
        assert not page.run("document.getElementById('events').textContent.includes('hold-fetch')"), "of the other lab"
        assert page.complaints == []
    lab = lab_in(directory)
    assert lab is not None, "its cluster stays, as after `tidegauge lab start`"
    subprocess.run([TIDEGAUGE, "lab", "stop", "--dir", str(directory)], capture_output=True, check=True)


def the_prediction_is_kept(page: Page, url: str) -> None:
    page.run("document.getElementById('prediction').value = 'after two fetches'")
    page.run("document.getElementById('prediction').dispatchEvent(new Event('input'))")
    page.open("about:blank")
    page.open(url)
    page.until("document.getElementById('prediction')?.value === 'after two fetches'")
    page.until(is_able("Check"))


def the_check_is_the_command_line_s(page: Page, directory: Path) -> None:
    """Before anything is done it does not pass; both say the same."""
    page.run(f"{button('Check')}.focus()")
    page.press("Enter", 13)
    verdict = "document.querySelector('.findings + .lesson-said').textContent"
    page.until(f"{verdict}.startsWith('high-watermark: not yet. Next: ')")
    command = [TIDEGAUGE, "lab", "check", "-o", "json", "--dir", str(directory)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    shown = page.run("[...document.querySelectorAll('.findings li')].map(one => one.textContent)")
    assert shown == [f"{'yes' if one['holds'] else 'no'} {one['text']}." for one in found["findings"]]


def fits_and_stands_in_nobodys_way(page: Page) -> None:
    """Three widths, light and dark: nothing scrolls sideways, and axe-core's rules hold."""
    page.run("document.querySelectorAll('#lesson details').forEach((one) => { one.open = true; })")
    page.run("(() => {" + AXE.read_text() + "})()")
    for width in (1440, 768, 390):
        for dark in (False, True):
            page.look(width, 900, dark=dark, still=True)
            assert page.run("document.documentElement.scrollWidth") <= width, f"{width} px scrolls sideways"
            found = json.loads(page.run("axe.run().then(one => JSON.stringify([one.violations, one.passes.length]))"))
            assert found[0] == [], f"{width} px, {'dark' if dark else 'light'}"
            assert found[1] > 20, "its rules found something to look at"
