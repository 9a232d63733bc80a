"""Stories and labs of the page without a cluster: requests, views and refusals (stories.py, teaching.py)."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.waiting import until_async

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.labs.catalogue import lab_named
from tidegauge_lab.labs.checking import Checked
from tidegauge_lab.labs.model import no, yes
from tidegauge_lab.scenario.loader import parse
from tidegauge_lab.scenario.model import Scenario
from tidegauge_lab.scenario.outcome import Outcome, PlayedStep
from tidegauge_lab.scenario.pace import Pace
from tidegauge_lab.watch import stories, teaching
from tidegauge_lab.watch.sources import LabSource
from tidegauge_lab.watch.teaching import Teaching

STORY = parse(
    "title: A story.\ncluster: {brokers: 1}\ntopics:\n  - {name: story, assignment: [0]}\n"
    "steps:\n  - produce: m1\n  - produce: m2\n",
    "mine.yaml",
)
Play = Callable[[Pace, Path], None]


class FakeHub:
    def __init__(self) -> None:
        self.followed: list[str] = []
        self.beside: Any = None

    def follow(self, source: LabSource | None) -> None:
        self.followed.append("first" if source is None else source.directory.name)

    def settle(self, source: LabSource) -> None:
        self.followed.append(f"settled {source.directory.name}")

    def show_beside(self, what: Any) -> None:
        self.beside = what

    def soon(self) -> None:
        pass


def plays(pace: Pace, directory: Path) -> None:
    """Play both steps as the player does."""
    cluster: Any = SimpleNamespace(directory=directory / "cluster")
    pace.on_stage(cluster)
    outcome = Outcome("mine")
    for number in range(2):
        pace.before(number)
        outcome.steps.append(PlayedStep(number, "produce", "", 0.0))
        pace.after(outcome)
    pace.at_end(outcome)


@pytest.fixture
def hub() -> FakeHub:
    return FakeHub()


@pytest.fixture
async def page(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Teaching]:
    set_play(monkeypatch, plays)
    lent: Any = hub
    made = Teaching(lent, tmp_path / "data", STORY)
    yield made
    await made.close()  # a story that a failed test leaves would keep its thread, and with it the tests, for ever


def set_play(monkeypatch: pytest.MonkeyPatch, one: Play) -> None:
    def play(story: Scenario, directory: Path, *, check: Callable[[], None], pace: Pace, is_temporary: bool) -> None:
        assert is_temporary, "where the page is killed nothing names the directory"
        del story, check
        one(pace, directory)

    monkeypatch.setattr(stories, "play", play)


async def shows(page: Teaching, phase: str) -> dict[str, Any]:
    async def shown() -> dict[str, Any] | None:
        story = page.as_json()["story"]
        return story if story is not None and story["phase"] == phase else None

    found = await until_async(shown, 60.0, phase)
    assert found is not None
    return found


async def test_a_story_waits_for_each_step_and_the_page_shows_its_cluster_until_it_is_ended(
    page: Teaching, hub: FakeHub, tmp_path: Path
):
    assert page.as_json()["story"] is None
    await page.do_story({"do": "start", "story": "mine"})
    await shows(page, "waiting")
    assert hub.followed == ["cluster"]
    assert page.directory.name == "cluster", "buttons are for the cluster that is shown"
    await page.do_story({"do": "next"})

    async def played() -> bool:
        return [step["state"] for step in page.as_json()["story"]["steps"]] == ["held", "next"]

    await until_async(played, 60.0)
    with pytest.raises(TidegaugeError, match="a story is being played: end it first"):
        await page.do_story({"do": "start", "story": "mine"})
    await page.do_story({"do": "on"})
    await shows(page, "over")
    assert hub.followed == ["cluster"], "one can look at it"
    await page.do_story({"do": "end"})
    assert (hub.followed, page.directory) == (["cluster", "first"], tmp_path / "data")
    assert page.as_json()["story"] is None


async def test_a_story_can_be_ended_anywhere_and_played_again(page: Teaching, hub: FakeHub):
    await page.do_story({"do": "start", "story": "mine"})
    await shows(page, "waiting")
    await page.close()
    assert hub.followed == ["cluster", "first"]
    await page.do_story({"do": "start", "story": "mine"})
    await page.do_story({"do": "on"})
    await shows(page, "over")
    await page.do_story({"do": "start", "story": "mine"})
    await shows(page, "waiting")
    await page.close()
    await page.close()
    assert hub.followed == ["cluster", "first"] * 3


async def test_a_story_that_gets_no_directory_says_so_and_can_be_ended(
    page: Teaching, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was shown as one that is being started, for ever, and its end raised the error."""

    def none(**_: Any) -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(stories.tempfile, "mkdtemp", none)
    await page.do_story({"do": "start", "story": "mine"})
    story = await shows(page, "failed")
    assert "No usable temporary directory found" in story["problem"]
    await page.do_story({"do": "end"})
    assert page.as_json()["story"] is None


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (TidegaugeError(ErrorCode.INVALID_REQUEST, "there is no Java"), "there is no Java"),
        (OSError("disk is full"), "the story could not be played: disk is full"),
    ],
)
async def test_a_story_that_cannot_be_played_says_why_and_the_page_goes_on(
    page: Teaching, monkeypatch: pytest.MonkeyPatch, problem: Exception, sentence: str
):
    def fails(pace: Pace, directory: Path) -> None:
        del pace, directory
        raise problem

    set_play(monkeypatch, fails)
    await page.do_story({"do": "start", "story": "mine"})
    assert (await shows(page, "failed"))["problem"] == sentence
    set_play(monkeypatch, plays)
    await page.do_story({"do": "start", "story": "mine"})
    await shows(page, "waiting")
    await page.close()


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"do": "start", "story": "/etc/passwd"}, "there is no story"),
        ({"do": "start", "story": "../mine.yaml"}, "there is no story"),
        ({"do": "start"}, "there is no story"),
        ({"do": "next"}, "no story is being played"),
        ({"do": "dance"}, "do is one of start, next"),
        ([], "do is one of start, next"),
    ],
)
async def test_what_is_no_story_is_refused(page: Teaching, asked: object, sentence: str):
    """The page names shipped stories, and the one that it was started with; never a file."""
    with pytest.raises(TidegaugeError, match=sentence):
        await page.do_story(asked)


async def test_a_lab_is_started_and_stopped_in_the_page_s_directory(
    page: Teaching, hub: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    done: list[tuple[str, Path]] = []
    monkeypatch.setattr(teaching, "begin", lambda lab, directory: done.append((lab.name, directory)))
    monkeypatch.setattr(teaching, "end", lambda directory: done.append(("end", directory)) or lab_named("acks-all"))
    assert await page.do_lab({"do": "start", "lab": "acks-all"}) == {"message": "The cluster of lab acks-all is up"}
    assert await page.do_lab({"do": "stop"}) == {"message": "Lab acks-all is over"}
    assert done == [("acks-all", tmp_path / "data"), ("end", tmp_path / "data")]
    assert hub.followed == ["settled data"] * 2, "nothing of a former cluster stays on the page"
    with pytest.raises(TidegaugeError, match="did you mean acks-all"):
        await page.do_lab({"do": "start", "lab": "acks-al"})
    with pytest.raises(TidegaugeError, match="which lab"):
        await page.do_lab({"do": "start"})


async def test_no_lab_begins_behind_a_story(page: Teaching):
    await page.do_story({"do": "start", "story": "mine"})
    await shows(page, "waiting")
    for asked in ({"do": "start", "lab": "acks-all"}, {"do": "stop"}):
        with pytest.raises(TidegaugeError, match="end the story first"):
            await page.do_lab(asked)
    await page.close()


async def test_the_check_says_what_the_command_line_says(page: Teaching, monkeypatch: pytest.MonkeyPatch):
    lab = lab_named("acks-all")
    found = [yes("The leader died"), no("Nothing was written", "write a record")]
    monkeypatch.setattr(teaching, "check", lambda *_: Checked(lab, found))
    said = await page.do_lab({"do": "check", "lab": "acks-all"})
    assert (said["message"], said["passed"]) == ("acks-all: not yet. Next: write a record.", False)
    assert [one["holds"] for one in said["findings"]] == [True, False]
    monkeypatch.undo()
    with pytest.raises(TidegaugeError, match="there is no lab's cluster in"):
        await page.do_lab({"do": "check"})
