"""Makes docs/gallery: a dozen failures, each played on real processes, drawn from its events, and kept as a recording.

``make gallery`` calls it. Of each run it keeps ``runs/NAME.json``, what a recording shows (docs/watch.md), and
``NAME.svg``, its sequence diagram; README.md tells them all. The documentation's site makes a page of each recording
(``write_recordings``), which needs no server and no network.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tidegauge.faults.schema import vocabulary
from tidegauge_client.translation import Translation
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.play.stories import stories
from tidegauge_lab.scenario.chinese import introduction_in_chinese, title_in_chinese
from tidegauge_lab.scenario.loader import load
from tidegauge_lab.scenario.state_steps import Expect
from tidegauge_lab.timeline.choice import Choice
from tidegauge_lab.timeline.drawing import draw
from tidegauge_lab.timeline.reading import Timeline
from tidegauge_lab.watch.chinese import sentences_of_views
from tidegauge_lab.watch.history import Recorded, history_of
from tidegauge_lab.watch.progress import verdict_of
from tidegauge_lab.watch.recording import recording_of

DOCS = Path(__file__).parents[1] / "docs"
GALLERY = DOCS / "gallery"
CHINESE = DOCS / "zh" / "gallery"
SCENARIOS = Path(__file__).parents[1] / "lab" / "tidegauge_lab" / "scenario" / "files"
BIN = Path(sys.executable).parent
PAIRS: dict[str, tuple[str, ...]] = {
    "A record that everybody had, lost": ("loss-high-watermark", "loss-cured"),
    "Two replicas that differ at one offset": ("divergence-high-watermark", "divergence-cured"),
    "Two quick elections": ("kip-279-fast-failover", "kip-279-cured"),
    "A follower that does not know its leader": ("zombie-follower-kip-279", "zombie-follower-cured"),
    "A leader without followers": ("zombie-leader", "unclean-election"),
    "Fewer replicas than promised": ("min-insync-replicas", "last-replica-standing"),
}
"""Pairs of the gallery: the loss and its cure, or two sides of one question."""
NAMES = tuple(name for pair in PAIRS.values() for name in pair)
ALLOWED = {
    "divergence-cured": "no append is flushed by default, so a loss of power may take what was acknowledged",
    "kip-279-cured": "acks=1 promised no more than that the leader had it",
    "zombie-follower-cured": "acks=1 promised no more than that the leader had it",
    "zombie-leader": "acks=1 promised no more than that the leader had it; what acks=all acknowledged is there",
    "unclean-election": "unclean.leader.election.enable=true lets a replica lead that is not in sync",
}
"""Losses that no rule of replication could prevent, and the setting that allows them."""
_SHOWN_KINDS = frozenset({"role", "isr", "truncation", "fault", "election", "broker"})
_SECONDS = 600
_HEAD = """\
# Gallery

[简体中文](../zh/gallery/README.md)

A dozen failures. Each was played on real broker processes by `make gallery`; the drawing is made from the event logs
that they wrote: time goes down, a column is a process. Click a drawing to see it large. On the documentation's site
(`make docs`) each has a recording, too, `gallery/NAME.html`: its logs, record by record, and a time line to drag.
"""


def play(name: str) -> dict[str, Any]:
    """Play a scenario on processes; keep its recording and its drawing, and return the kept run.

    Raises:
        RuntimeError: it did not go as it should.
    """
    command = [BIN / "tidegauge", "scenario", "run", name, "--keep", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name} failed: {done.stdout[-2000:]} {done.stderr[-2000:]}")
    directory = Path(done.stderr.strip().rpartition(" ")[2])
    with closing(Timeline(LocalCluster(directory / "cluster").logs)) as source:
        events = list(source.written())
    shutil.rmtree(directory)
    scenario = yaml.safe_load((SCENARIOS / f"{name}.yaml").read_text(encoding="utf-8"))
    steps = json.loads(done.stdout)["steps"]
    audits = [(place, one["details"]) for place, one in enumerate(steps) if one["verb"] == "verify"]
    story = {
        "title": scenario["title"].strip(),
        "text": f"{' '.join(scenario['teaches'].split())}\n{' '.join(scenario['rule'].split())}",
        "verdict": _by_values(_graded(name, verdict_of(audits))),
    }
    kept = history_of(events).recorded().as_json() | {"story": story}
    (GALLERY / "runs").mkdir(parents=True, exist_ok=True)
    (GALLERY / "runs" / f"{name}.json").write_text(_compact(kept), encoding="utf-8")
    (GALLERY / f"{name}.svg").write_text(draw(events, Choice(kinds=_SHOWN_KINDS)).svg, encoding="utf-8")
    return kept


def _graded(name: str, verdict: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a verdict in which an allowed loss is no defect."""
    if name not in ALLOWED:
        return verdict
    return [
        one | {"grade": "warn", "text": f"{one['text']}: {ALLOWED[name]}"} if one["kind"] == "told" else one
        for one in verdict
    ]


def _by_values(verdict: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a verdict that names records by their values, not producers' numbers."""
    return [
        one | {"text": re.sub(r"record \d+ of producer \S+ \('(\w+)'\)", r"\1", one["text"])} if "text" in one else one
        for one in verdict
    ]


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


def kept_run(name: str) -> dict[str, Any]:
    """Return a kept run."""
    found: dict[str, Any] = json.loads((GALLERY / "runs" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def page(names: Sequence[str] = NAMES) -> str:
    """Return docs/gallery/README.md, from the runs that are kept."""
    in_browser = {one["name"] for one in stories()}
    parts = [_HEAD]
    for title, pair in PAIRS.items():
        parts.append(f"## {title}\n")
        parts += [_entry(name, kept_run(name)["story"], in_browser) for name in pair if name in names]
    return "\n".join(parts)


@cache
def _chinese() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("gallery_zh.yaml").read_text(encoding="utf-8"))
    return found


def page_in_chinese() -> str:
    """Return docs/zh/gallery/README.md, from the runs that are kept."""
    words, in_browser = _chinese(), {one["name"] for one in stories()}
    parts = [words["head"]]
    for title, pair in PAIRS.items():
        parts.append(f"## {words['pairs'][title]}\n")
        for name in pair:
            heading, text = title_in_chinese(name), introduction_in_chinese(name)[0]
            verdict = verdict_in_chinese(kept_run(name)["story"]["verdict"])
            by_story = words["in_browser"].format(name=name) if name in in_browser else ""
            parts.append(words["entry"].format(title=heading, text=text, verdict=verdict, name=name, by_story=by_story))
    return "\n".join(parts)


@cache
def _translation() -> Translation:
    return Translation(sentences_of_views())


def verdict_in_chinese(verdict: Sequence[dict[str, Any]]) -> str:
    """Return the verdict in Chinese."""
    mark, _, text = verdict_line(verdict).partition(" ")
    return f"{mark} {_translation().translated(text)}"


def story_in_chinese(name: str) -> dict[str, str]:
    """Return the story in Chinese by the English texts."""
    story = kept_run(name)["story"]
    return {
        story["title"]: title_in_chinese(name),
        " ".join(story["text"].split()): "\n".join(introduction_in_chinese(name)),
    }


def values_of(name: str) -> dict[str, dict[str, str]]:
    """Return the values of a run's records by partition and OFFSET@EPOCH.

    The story's expectations name them, all of which held in the run; offset and leader epoch name one record.
    """
    scenario = load(name)
    found: dict[str, dict[str, str]] = {}
    for step in scenario.steps:
        if not isinstance(step, Expect) or not step.log:
            continue
        values = found.setdefault(str(step.partition or scenario.first_partition), {})
        for records in step.log.values():
            known = [(f"{place}@{one.leader_epoch}", one) for place, one in enumerate(records)]
            values |= {at: one.value for at, one in known if one.leader_epoch is not None}
    return found


def _entry(name: str, story: dict[str, Any], in_browser: set[str]) -> str:
    text = story["text"].partition("\n")[0]
    commands = [f"`tidegauge scenario run {name}`"]
    if name in in_browser:
        commands.append(f"in the browser `tidegauge play --story {name}`")
    return (
        f"### {story['title']}\n\n{text}\n\n**{verdict_line(story['verdict'])}**\n\n"
        f"[![{name}: what each process did, drawn from its events]({name}.svg)]({name}.svg)\n\n"
        f"Play it: {', '.join(commands)}.\n"
    )


def verdict_line(verdict: Sequence[dict[str, Any]]) -> str:
    """Return the verdict on a run's end, in a line."""
    lines = [one["text"] for one in verdict if one["kind"] == "told"]
    if lines:
        mark = "!" if all(one.get("grade") == "warn" for one in verdict) else "✕"
        return f"{mark} {'; '.join(lines)}"
    return "✓ No acknowledged record is lost." if verdict else "✓ It went as expected."


def write_recordings(directory: Path) -> list[Path]:
    """Write each run that is kept as a page with its story into a directory; return the files."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name in NAMES:
        kept = kept_run(name)
        recorded = Recorded(kept["base"], kept["steps"], len(kept["steps"]))
        file = directory / f"{name}.html"
        story = kept["story"] | {"values": values_of(name)}
        recording = recording_of(recorded, name, vocabulary(), story, story_in_chinese(name))
        file.write_text(recording, encoding="utf-8")
        written.append(file)
    return written


def main() -> None:
    """Play all, or those that are named, and write the page."""
    for name in sys.argv[1:] or NAMES:
        kept = play(name)
        sys.stderr.write(f"{name}: {len(kept['steps'])} steps, {verdict_line(kept['story']['verdict'])}\n")
    (GALLERY / "README.md").write_text(page(), encoding="utf-8")
    CHINESE.mkdir(parents=True, exist_ok=True)
    (CHINESE / "README.md").write_text(page_in_chinese(), encoding="utf-8")


if __name__ == "__main__":
    main()
