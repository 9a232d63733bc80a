"""The stories of the page ``play``: a tour, and the shipped scenarios that need no operating system.

``stories`` gives plain values for the page. Which scenarios play is decided by what the hand-driven cluster can do
(``tidegauge_proof.hand.story.unplayable``); the lab knows no proofs, so ``stories.yaml`` has the names, and a test
compares them.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import yaml

from tidegauge_client.packaged_texts import packaged_texts
from tidegauge_lab.play.story_names import with_orders
from tidegauge_lab.scenario.chinese import introduction_in_chinese, note_in_chinese, title_in_chinese
from tidegauge_lab.scenario.themes import theme_of, themes

Json = dict[str, Any]
_RULE = "replica.truncation.rule"
_OF_KAFKA_4 = "groups-of-kafka-4"
_ABOUT_THE_LOSS = frozenset({"expect", "verify", "wait_hw", "wait_leo"})


def _texts(name: str = "stories.yaml") -> Json:
    found: Json = packaged_texts("tidegauge_lab.play", name)
    return found


def played() -> frozenset[str]:
    """Return the names of the shipped scenarios that play in a browser."""
    return frozenset(_texts()["plays"])


@cache
def stories() -> list[Json]:
    """Return the tour, its cure, and the scenarios that play, in both languages."""
    texts = _texts()
    cures: dict[str, str] = texts["cures"]
    found = [_tour(one, texts["tour"]["steps"], cures) for one in texts["tour"]["versions"]]
    found += map(_lab, _texts("labs.yaml")["labs"])
    found += map(_of_groups, _texts("groups.yaml")["stories"])
    files = resources.files("tidegauge_lab.scenario").joinpath("files")
    for name in texts["plays"]:
        scenario = yaml.safe_load(files.joinpath(f"{name}.yaml").read_text(encoding="utf-8"))
        story = _story(name, scenario, {"en": scenario["title"].strip(), "zh": title_in_chinese(name)}, cures.get(name))
        story |= {"theme": theme_of(name).name, "shipped": True}
        found.append(story)
        cured = cures.get(name)
        if cured is not None and cured not in texts["plays"]:
            found.append(_cured(story, cured, texts["of_today_zh"]))
    return _by_theme(found)


def _by_theme(found: list[Json]) -> list[Json]:
    """Return the stories by theme, a cure after its loss; the tour first."""
    places = {"first": -3, "labs": -2, _OF_KAFKA_4: -1} | {theme.name: place for place, theme in enumerate(themes())}
    order = [name for theme in themes() for name in theme.scenarios]

    def place(story: Json) -> tuple[int, int]:
        if story["theme"] in {"labs", _OF_KAFKA_4}:
            return places[story["theme"]], 0
        name = story["name"].removesuffix("-cured") if story["name"] not in order else story["name"]
        return places[story["theme"]], order.index(name) if name in order else -1

    return sorted(found, key=place)


def exercises() -> list[Json]:
    """Return the ladder of rules to write, with tasks, hints and solutions."""
    found: list[Json] = _texts("exercises.yaml")["exercises"]
    return found


def _tour(one: Json, steps: list[Json], cures: dict[str, str]) -> Json:
    scenario = {
        "cluster": {"brokers": 3, "controller": 0, "settings": {_RULE: one["rule"]}},
        "topics": [{"name": "story", "assignment": [1, 2, 0]}],
        "steps": steps,
    }
    named = {name: one[name] for name in ("name", "title", "intro")}
    return {**named, "theme": "first", "scenario": scenario, "cure": cures.get(one["name"])}


def _lab(lab: Json) -> Json:
    """Return a lab as a story, with a schedule's settings and actions."""
    scenario = {"settings": lab["settings"], "steps": lab["steps"]}
    named = {name: lab[name] for name in ("title", "intro")}
    return {"name": f"lab-{lab['lab']}", **named, "theme": "labs", "scenario": scenario, "cure": None}


def _of_groups(one: Json) -> Json:
    """Return a story of a Kafka 4 group, with a schedule's settings and actions."""
    scenario = {"settings": one["settings"], "steps": one["steps"]}
    named = {name: one[name] for name in ("name", "title", "intro")}
    return {**named, "theme": _OF_KAFKA_4, "scenario": scenario, "cure": None}


def labs_elsewhere() -> Json:
    """Return the labs that do not play, with a similar story or the reason."""
    found: Json = _texts("labs.yaml")["elsewhere"]
    return found


def _story(name: str, scenario: Json, title: Json, cure: str | None) -> Json:
    intro = f"{scenario.get('teaches', '').strip()}\n\n{scenario.get('rule', '').strip()}".strip()
    played_parts = {key: scenario[key] for key in ("cluster", "topics", "steps")}
    played_parts["steps"] = [_in_both(step) for step in scenario["steps"]]
    both = {"en": intro, "zh": "\n\n".join(introduction_in_chinese(name))}
    return {"name": name, "title": title, "intro": both, "scenario": played_parts, "cure": cure}


def _in_both(step: Json) -> Json:
    """Return a step with its note in English and Chinese."""
    step = with_orders(step)
    if "note" not in step:
        return step
    return {**step, "note": {"en": " ".join(step["note"].split()), "zh": note_in_chinese(step["note"])}}


def _cured(story: Json, name: str, of_today_zh: str) -> Json:
    """Return a story by today's rule: the same steps, without expectations of loss."""
    scenario = dict(story["scenario"])
    settings = {key: value for key, value in scenario["cluster"].get("settings", {}).items() if key != _RULE}
    scenario["cluster"] = {**scenario["cluster"], "settings": settings}
    scenario["steps"] = [step for step in scenario["steps"] if not _ABOUT_THE_LOSS & set(step)] + [{"verify": {}}]
    title = {
        "en": f"{story['title']['en']} The same steps by today's rule.",
        "zh": f"{story['title']['zh']}{of_today_zh}",
    }
    return {**story, "name": name, "title": title, "scenario": scenario, "cure": None, "shipped": False}
