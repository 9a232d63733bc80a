"""docs/configuration.md, docs/server.properties and the help are made from the table of settings, and are true."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidegauge.settings import BROKER_SETTINGS, GROUP_CONFIGS, TOPIC_SETTINGS
from tidegauge.settings.document import configuration_page, help_lines, properties_file, range_text
from tidegauge.settings.parsing import parse_broker_settings
from tidegauge.settings.properties import read_properties

ROOT = Path(__file__).parents[3]
COMPONENTS = ("broker", "controller", "proto")


def test_the_files_are_as_the_table_is():
    """After a change of the table: python tools/generate-configuration.py."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "generate-configuration.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", [configuration_page(), properties_file(), "\n".join(help_lines())])
def test_every_broker_setting_is_named(text):
    assert [name for name in BROKER_SETTINGS if name not in text] == []


def test_every_topic_setting_is_named():
    page = configuration_page()
    assert [name for name in TOPIC_SETTINGS if f"| `{name}` |" not in page] == []


def test_the_sample_with_all_comment_signs_taken_away_is_a_broker_with_the_defaults():
    text = re.sub(r"^#([a-z0-9.]+=.+)$", r"\1", properties_file(), flags=re.MULTILINE)
    values, unknown = parse_broker_settings(read_properties(text))
    assert unknown == []
    assert {name: values[name] for name in values.given} == {
        name: setting.default for name, setting in BROKER_SETTINGS.items() if setting.default not in {None, (), ""}
    }


def test_ranges_are_reported_with_their_unit():
    assert range_text(TOPIC_SETTINGS["segment.bytes"]) == "at least 14 bytes"
    assert range_text(TOPIC_SETTINGS["flush.messages"]) == "at least 1 record"
    assert range_text(TOPIC_SETTINGS["segment.ms"]) == "at least 1 ms"
    assert range_text(TOPIC_SETTINGS["min.cleanable.dirty.ratio"]) == "0 to 1"
    assert range_text(TOPIC_SETTINGS["cleanup.policy"]) == "any of compact, delete"
    assert range_text(TOPIC_SETTINGS["retention.bytes"]) == "any number of bytes"
    assert range_text(BROKER_SETTINGS["leader.imbalance.per.broker.percentage"]) == "0 to 100 %"
    assert range_text(BROKER_SETTINGS["lab.enable"]) == "true, false"


def test_what_is_said_to_have_no_effect_is_read_nowhere():
    """The mark "No effect" is a promise; so is its absence."""
    sources = [
        path.read_text(encoding="utf-8")
        for component in COMPONENTS
        for path in (ROOT / component).rglob("*.py")
        if "settings" not in path.parts and "_pb2" not in path.name
    ]
    named = set(re.findall(r'"([a-z]+(?:\.[a-z0-9]+)*)"', "\n".join(sources)))
    for setting in TOPIC_SETTINGS.values():
        if setting.name in named and setting.broker_key is not None:
            named.add(setting.broker_key)
    for setting in BROKER_SETTINGS.values():
        if setting.name in named:
            named.update(fallback.name for fallback in setting.fallbacks)
    for setting in GROUP_CONFIGS.values():  # a group's own settings, which their brokers' bound
        if setting.broker_key is None:
            continue
        named.add(setting.broker_key)
        named.update(
            setting.broker_key.replace(protocol, f"{protocol}{which}.")
            for protocol in ("group.consumer.", "group.share.")
            for which in ("min", "max")
        )
    settings = [*TOPIC_SETTINGS.values(), *BROKER_SETTINGS.values()]
    assert [s.name for s in settings if not s.has_effect and s.name in named] == []
    # It is there to be checked: brokers speak one version alone.
    unread = {"inter.broker.protocol.version"}
    assert {s.name for s in settings if s.has_effect and s.name not in named} == unread
