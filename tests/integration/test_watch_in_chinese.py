"""The page of `tidegauge watch` and its recordings at ?lang=zh: no English, in a real browser (docs/watch.md)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.chromium import chromium
from tests.integration.english import english_in
from tests.integration.test_watch import Watching, make_topic
from tests.integration.test_watch_lessons import watching
from tools.gallery import NAMES, write_recordings

from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]
OPEN_ALL = "document.querySelectorAll('details').forEach(one => { one.open = true; })"
SPEAKS = "document.getElementById('learn')?.textContent.startsWith('学习')"
STATE = "(document.querySelector('.story-state')?.textContent || '')"


def button(text: str) -> str:
    return f"[...document.querySelectorAll('button')].find(one => one.textContent === '{text}')"


def test_a_recording_of_the_gallery_says_nothing_in_english(tmp_path: Path) -> None:
    """Its story, its verdict, and each moment of it; a press on the button at the top shows it in English."""
    files = write_recordings(tmp_path / "gallery")
    with chromium(tmp_path / "profile") as page:
        page.look(1280, 720, dark=False)
        for file in files:
            page.open(f"{file.as_uri()}?lang=zh")
            page.until(f"location.pathname.includes({json.dumps(file.stem)})")
            page.until(
                "document.querySelectorAll('#lanes .lane').length > 0 && document.documentElement.lang === 'zh-CN'"
            )
            page.run(OPEN_ALL)
            page.run("document.querySelectorAll('#table .who button').forEach(one => one.click())")
            page.run("document.getElementById('moment').focus()")
            for _ in range(8):
                assert english_in(page) == [], file.stem
                page.press("PageDown", 34)
        page.open(f"{files[0].as_uri()}?lang=zh")
        page.until("document.querySelector('#lanes .box b')?.textContent === 'm1'")
        assert page.run("document.getElementById('verdict').textContent").startswith("丢失")
        page.run("document.getElementById('other-language').click()")
        page.until("document.documentElement?.lang === 'en' && document.querySelector('#verdict .what') !== null")
        assert page.run("document.getElementById('verdict').textContent").startswith("lost: m2")
        assert page.complaints == []
    assert len(files) == len(NAMES)


def test_a_live_cluster_its_faults_and_a_lab_say_nothing_in_english(cluster: LocalCluster, tmp_path: Path) -> None:
    at = make_topic(cluster, "chinese")
    begun = Watching.begin(cluster)
    try:
        with chromium(tmp_path / "profile") as page:
            page.look(1280, 800, dark=False)
            page.open(f"{begun.url}?lang=zh")
            page.until("document.querySelectorAll('#choice option').length > 20")
            page.until(f"document.getElementById('table').textContent.includes({json.dumps(at)})")
            page.until(SPEAKS)
            page.run(OPEN_ALL)
            assert english_in(page) == []
            for name in page.run("[...document.querySelectorAll('#fault option')].map(one => one.value)"):
                field = "document.getElementById('fault')"
                page.run(f"{field}.value = {json.dumps(name)}; {field}.dispatchEvent(new Event('change'))")
                assert english_in(page) == [], name
            page.run("document.querySelectorAll('#table .who button').forEach(one => one.click())")
            assert english_in(page) == []
            page.run("document.querySelector('[aria-label=\"杀死 broker 2\"]').click()")
            page.until("document.getElementById('said').textContent.includes('broker 2 已杀死')")
            page.until("document.querySelector('#cards .state.down') !== null")
            assert english_in(page) == []
            page.run("document.querySelector('[aria-label=\"启动 broker 2\"]').click()")
            page.until("document.getElementById('said').textContent.includes('broker 2 已启动')")
            page.run("document.getElementById('offsets').click()")
            assert english_in(page) == []
            page.run("window.location.hash = 'lab-acks-all'")
            page.until("document.querySelector('.bench') !== null")
            page.run(OPEN_ALL)
            assert english_in(page) == []
            assert page.complaints == []
    finally:
        begun.end()


def test_a_story_is_played_to_its_end_in_chinese(tmp_path: Path) -> None:
    story = ("--scenario", "walkthrough-two-replicas")
    with watching("--dir", str(tmp_path / "none"), *story) as begun, chromium(tmp_path / "profile") as page:
        page.look(1280, 800, dark=False)
        page.open(f"{begun.url}?lang=zh")
        page.until(SPEAKS)
        page.until(f"{button('连续播放')}?.getAttribute('aria-disabled') === 'false'")
        assert english_in(page) == []
        page.run(f"{button('连续播放')}.click()")
        page.until(f"{STATE}.startsWith('故事结束')", 300)
        page.run(OPEN_ALL)
        assert english_in(page) == []
        assert page.complaints == []
