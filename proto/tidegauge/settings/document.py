"""Render the table of settings: docs/configuration.md, a server.properties, ``tidegauge broker --help``.

Pure; ``tools/generate-configuration.py`` writes the files, and a test compares them with the output of this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidegauge.settings.broker import BROKER_GROUPS, BROKER_SETTINGS, KRAFT_BROKER_SETTINGS
from tidegauge.settings.group import GROUP_CONFIGS
from tidegauge.settings.model import INT_MAX, LONG_MAX, Setting, number_text
from tidegauge.settings.quorum import CONTROLLER_GROUPS
from tidegauge.settings.topic import TOPIC_SETTINGS

_INTRODUCTION = """\
# Configuration

<!-- Made by tools/generate-configuration.py from proto/tidegauge/settings; change it there. -->

Names, defaults and ranges are Kafka 3.9's. A setting that Kafka does not have says so. One marked *no effect* is
accepted, checked and shown as Kafka does, and changes nothing here.

## Where a value comes from

For a broker, the first of these that has one:

1. its dynamic settings, `/config/brokers/ID` (`tidegauge alter-config --broker ID --add-config K=V`),
2. the dynamic settings of all brokers, `/config/brokers/<default>` (`--broker-defaults`),
3. its command line: `--override K=V`, then `--environment`, then the file of `--config` (`up --set` writes there),
4. another setting that it falls back to, such as `log.retention.hours` for `log.retention.ms`,
5. the default.

For a topic: its own, `/config/topics/NAME` (`create-topic --config K=V`, `alter-config --topic NAME --add-config K=V`),
else the value of the brokers' setting in the same row below.

Every broker applies a change at once, and after a restart. `describe-config --all` shows the values in force and, under
*synonyms*, every place that sets a value. An unknown topic setting, or a value outside its range, is rejected with the
name and the range, and no part of the request takes effect. A broker that finds an unknown name in its file logs a
warning and starts, as Kafka does. [server.properties](server.properties) lists all settings of brokers in that form.

*Update* says when a broker setting may change: `read-only` at start only, `per-broker` and `cluster-wide` while brokers
run (the latter for one broker or for all).

## advertised.listeners of a running broker

As in Kafka in ZooKeeper mode (`DynamicListenerConfig`) a broker's addresses may change while it runs, with any Kafka
client's IncrementalAlterConfigs or AlterConfigs, or with

```
tidegauge alter-config --broker 0 --add-config 'advertised.listeners=[PLAINTEXT://localhost:9092,GRPC://127.0.0.1:19092]'
```

The broker writes them into its registration, `/brokers/ids/ID`, whose broker epoch stays; the controller sends them to
all brokers, and Metadata responses have them. Open connections to the former address stay open; followers and the
controller use the new one for their next connection. The setting has precedence over the broker's file, also
after a restart; when it is deleted, the file's addresses return.

- Each name must be in `listeners`. Some may be absent, but not the listeners that brokers use among themselves: the
  inter-broker listener, the control plane's, a gRPC listener. A value that breaks this rule is refused with
  INVALID_REQUEST, and nothing is written.
- An address that another broker has registered is not refused, but not registered either, as in Kafka: the broker's log
  says so, and the former addresses stay. Nor does the broker start with it.
- It is a setting of one broker, which alone describes and alters it; for all brokers it is refused, and a value that
  another tool wrote for all brokers is ignored.
- `listeners` and `listener.security.protocol.map`, which may change in Kafka, too, are read at the start.
- In KRaft mode the setting is read at the start as well, as in Kafka 4, whose `DynamicBrokerConfig` does not have it: a
  broker registers its addresses when it starts, and a change of them is refused with INVALID_REQUEST and the sentence
  `Cannot update these configs dynamically`. [`PUT /v1/advertised`](steering.md) restarts the brokers with other ones.
"""

_PROPERTIES_INTRODUCTION = """\
# A server.properties with every setting and its default.
# Made by tools/generate-configuration.py from proto/tidegauge/settings; change it there.
# A broker needs broker.id, zookeeper.connect and, usually, listeners and log.dirs of its own:
#   tidegauge broker --config server.properties --override broker.id=1
"""


def configuration_page() -> str:
    """Return the text of docs/configuration.md."""
    return _INTRODUCTION + "\n".join(_page_tables()) + "\n"


_GROUPS_TEXT = """\
Names, defaults, bounds and sentences are Kafka 4.3's. The settings exist in KRaft mode, and in ZooKeeper mode if
`tidegauge.zookeeper.group.protocols` has `consumer` or `share`, an extension.
`tidegauge alter-config --group ID --add-config K=V` sets them, or any client's IncrementalAlterConfigs. A group need
not exist. In ZooKeeper mode they are kept in `/config/groups/ID`. They
count from each member's next heartbeat on. `group.consumer.min.*`, `group.consumer.max.*`, `group.share.min.*` and
`group.share.max.*` bound the legal values; a stored value outside changed bounds counts as the nearest bound.
"""


def _page_tables() -> Iterator[str]:
    yield "\n## Settings of topics\n"
    yield "All of them may be changed while brokers run.\n"
    yield "| setting | default | range | the brokers' setting | meaning |"
    yield "|---|---|---|---|---|"
    for _, setting in sorted(TOPIC_SETTINGS.items()):
        yield _row(
            f"`{setting.name}`",
            _code(default_text(setting)),
            range_text(setting),
            "none" if setting.broker_key is None else f"`{setting.broker_key}`",
            meaning_text(setting),
        )
    yield "\n## Settings of groups\n"
    yield _GROUPS_TEXT
    yield "| setting | default | range | the brokers' setting | meaning |"
    yield "|---|---|---|---|---|"
    for name, setting in sorted(GROUP_CONFIGS.items()):
        yield _row(
            f"`{name}`",
            _code(default_text(setting)),
            range_text(setting),
            "none" if setting.broker_key is None else f"`{setting.broker_key}`",
            meaning_text(setting),
        )
    for group, table in BROKER_GROUPS.items():
        yield f"\n## Settings of brokers: {group}\n"
        yield "| setting | default | range | update | meaning |"
        yield "|---|---|---|---|---|"
        for setting in table:
            yield _row(
                f"`{setting.name}`",
                _code(default_text(setting)),
                range_text(setting),
                setting.update,
                meaning_text(setting),
            )
    yield "\n## Settings of brokers: other defaults in KRaft mode\n"
    yield "These are the defaults of Kafka 4."
    yield "\n| setting | default | in KRaft mode |\n|---|---|---|"
    for name, setting in sorted(KRAFT_BROKER_SETTINGS.items()):
        if setting.default != BROKER_SETTINGS[name].default:
            yield _row(f"`{name}`", _code(default_text(BROKER_SETTINGS[name])), _code(default_text(setting)))
    yield "\n## Settings of controllers in KRaft mode\n"
    yield "Names, defaults and ranges are Kafka 4.3's; all are read at the start only."
    for group, table in CONTROLLER_GROUPS.items():
        yield f"\n### Controllers: {group}\n"
        yield "| setting | default | range | meaning |"
        yield "|---|---|---|---|"
        for setting in table:
            cells = (_code(default_text(setting)), range_text(setting), meaning_text(setting))
            yield _row(f"`{setting.name}`", *cells)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _code(text: str) -> str:
    return f"`{text}`" if text else "empty"


def properties_file() -> str:
    """Return the text of docs/server.properties; every setting is commented out."""
    return _PROPERTIES_INTRODUCTION + "\n".join(_properties_lines()) + "\n"


def _properties_lines() -> Iterator[str]:
    for group, table in BROKER_GROUPS.items():
        yield f"\n############ {group} ############"
        for setting in table:
            yield f"\n# {meaning_text(setting)} Legal: {range_text(setting)}; {setting.update}."
            value = "" if setting.default is None else default_text(setting)
            yield f"#{setting.name}={value}"


def help_lines() -> Iterator[str]:
    """Yield all broker settings for the help of ``tidegauge broker``: name, default, range, update mode."""
    for group, table in BROKER_GROUPS.items():
        yield f"{group}:"
        for setting in table:
            yield f"  {setting.name}={'' if setting.default is None else default_text(setting)}"
            yield f"      {range_text(setting)}; {setting.update}. {meaning_text(setting)}"


def default_text(setting: Setting) -> str:
    """Return a default as Kafka's documentation writes it."""
    return "null" if setting.default is None else setting.text_of(setting.default)


def meaning_text(setting: Setting) -> str:
    """Return what a setting means, and whether it has no effect."""
    text = setting.meaning
    if not setting.has_effect:
        text += " No effect."
    return text


_NOUNS = frozenset({" bytes", " records"})
"""Units that are plural nouns, and not the symbol of one, such as ``ms``."""


def range_text(setting: Setting) -> str:
    """Return the legal values in few words, with the unit."""
    if setting.choices:
        return ("any of " if setting.kind == "list" else "") + _listed(setting.choices)
    if setting.kind == "bool":
        return "true, false"
    if setting.kind not in {"int", "float"}:
        return "texts with commas" if setting.kind == "list" else "text"
    minimum, maximum = setting.minimum, setting.maximum
    has_minimum = minimum is not None and minimum not in {-INT_MAX - 1, -LONG_MAX - 1}
    has_maximum = maximum is not None and maximum not in {INT_MAX, LONG_MAX}
    unit = f" {setting.unit}" if setting.unit else ""
    if has_minimum and has_maximum:
        return f"{number_text(minimum or 0)} to {number_text(maximum or 0)}{unit}"
    if has_minimum:
        return (
            f"at least {number_text(minimum or 0)}{unit.removesuffix('s') if minimum == 1 and unit in _NOUNS else unit}"
        )
    return f"any number of {setting.unit}" if setting.unit else "any number"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
