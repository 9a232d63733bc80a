"""Settings that change while brokers run: precedence, alteration, and their description.

Rules:
    1. For a topic: its own value, else the broker's. For a broker: its own dynamic value, else the cluster-wide one
       (``<default>``), else server.properties, else the table's default.
    2. A setting in ZooKeeper that is unknown, illegal or not dynamic is left out, and reported: a broker must not fail
       because of a znode that another tool wrote. A layer that contradicts the layers below is left out completely.
    3. An alteration is checked as a whole before anything is written: one bad key or value, and nothing changes.
    4. A setting that Kafka has per broker alone (``DynamicBrokerConfig.PerBrokerConfigs``) is not one for all brokers.
    5. A broker setting that the table lacks is rejected; Kafka would store it for a plug-in, and there are none here.
       A setting in the znode that is unusable here stays there: an Apache Kafka broker may need it again.

Pure. Source: DynamicBrokerConfig, ConfigAdminManager, ZkAdminManager.alterTopicConfigs and alterBrokerConfigs,
ConfigHelper.createTopicConfigEntry and createBrokerConfigEntry.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.near_names import each_did_you_mean
from tidegauge.settings.broker import BROKER_SETTINGS
from tidegauge.settings.group import group_values, usable_group_configs
from tidegauge.settings.listeners import ADVERTISED, check_advertised
from tidegauge.settings.model import Setting, Values
from tidegauge.settings.parsing import broker_setting, check_broker, setting_in, topic_values
from tidegauge.settings.topic import TOPIC_SETTINGS

DYNAMIC_TOPIC = "DYNAMIC_TOPIC_CONFIG"
DYNAMIC_GROUP = "DYNAMIC_GROUP_CONFIG"
DYNAMIC_BROKER = "DYNAMIC_BROKER_CONFIG"
DYNAMIC_DEFAULT = "DYNAMIC_DEFAULT_BROKER_CONFIG"
STATIC = "STATIC_BROKER_CONFIG"
DEFAULT = "DEFAULT_CONFIG"
_OF_ONE_BROKER = frozenset({ADVERTISED, "sasl.enabled.mechanisms", "sasl.kerberos.min.time.before.relogin"})
"""Settings of rule 4; settings of single listeners (``listener.name.*``) are per broker, too."""


class Synonym(NamedTuple):
    """One place that sets a value: Kafka's source, the setting's name there, and its text."""

    source: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class SettingView:
    """A setting as it is in force; ``value`` is None if a broker setting has none of its own."""

    name: str
    value: str | None
    source: str
    is_read_only: bool
    synonyms: tuple[Synonym, ...] = ()

    @property
    def is_default(self) -> bool:
        """Whether the value is the default."""
        return self.source == DEFAULT


class BrokerSettings:
    """A broker's settings in layers. ``live`` has the values in force; it is updated in place, so it may be held.

    Args:
        static: the settings from server.properties and the command line.
    """

    def __init__(self, static: Values) -> None:
        self._static = dict(static.given)
        self._default: dict[str, str] = {}
        self._own: dict[str, str] = {}
        self._given = dict(static.given)
        self.live = Values(static.table, self._given)

    def replace(self, *, default: Mapping[str, str], own: Mapping[str, str]) -> list[str]:
        """Apply the dynamic layers of ZooKeeper; return the omitted settings with their reasons (rule 2)."""
        problems: list[str] = []
        self._default = self._usable(_of_all(default, problems), {}, problems)
        self._own = self._usable(own, self._default, problems)
        given = self._merged(self._default, self._own)
        self._given.update(given)
        for name in self._given.keys() - given.keys():
            del self._given[name]
        return problems

    def _usable(self, texts: Mapping[str, str], below: Mapping[str, str], problems: list[str]) -> dict[str, str]:
        usable, left_out = self.usable(texts)
        problems += left_out
        try:
            self._check_together(below, usable)
        except TidegaugeError as problem:
            problems.append(problem.message)
            return {}
        return usable

    def _merged(self, *layers: Mapping[str, str]) -> dict[str, Any]:
        merged = dict(self._static)
        for layer in layers:
            merged.update((name, self._dynamic(name).parse(text)) for name, text in layer.items())
        return merged

    def usable(self, texts: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
        """Return a broker's usable dynamic settings, and why others were omitted (rule 2)."""
        return _one_by_one(texts, self._check_dynamic)

    def check(self, texts: Mapping[str, str], *, for_all: bool) -> None:
        """Check that these texts may become this broker's dynamic settings, or those of all brokers.

        Raises:
            TidegaugeError: INVALID_REQUEST, a setting is not dynamic, or is per broker only; INVALID_CONFIG, one is
                unknown, a value illegal, or two contradict each other.
        """
        self._check_dynamic(texts)
        if for_all and (narrow := sorted(filter(_is_of_one_broker, texts))):
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                "Cannot update these configs at default cluster level, broker id must be specified: "
                f"Set({', '.join(narrow)})",
            )
        self._check_together(*((texts, self._own) if for_all else (self._default, texts)))

    def _check_together(self, *layers: Mapping[str, str]) -> None:
        """Check these dynamic layers over server.properties."""
        values = Values(self.live.table, self._merged(*layers))
        check_broker(values)
        if any(ADVERTISED in layer for layer in layers):
            check_advertised(Values(self.live.table, self._static), values)

    def _check_dynamic(self, texts: Mapping[str, str]) -> None:
        """Check that each setting may be changed while brokers of this mode run, and has a legal value."""
        check_known(texts, BROKER_SETTINGS)
        fixed = sorted(name for name in texts if not self._dynamic(name).dynamic)
        if fixed:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: Set({', '.join(fixed)})"
            )
        for name, text in texts.items():
            self._dynamic(name).parse(text)

    def _dynamic(self, name: str) -> Setting:
        """Return a known setting by the name under which it is stored."""
        setting = setting_in(self.live.table, name)
        assert setting is not None, name
        return setting

    # Showing

    def views(self) -> list[SettingView]:
        """Return the views of a broker's settings, sorted by name."""
        return [self._view(setting) for _, setting in sorted(self.live.table.items())]

    def default_views(self) -> list[SettingView]:
        """Return the views of the dynamic settings of all brokers, sorted by name."""
        return [
            SettingView(
                name, text, DYNAMIC_DEFAULT, is_read_only=False, synonyms=(Synonym(DYNAMIC_DEFAULT, name, text),)
            )
            for name, text in sorted(self._default.items())
        ]

    def _view(self, setting: Setting) -> SettingView:
        synonyms = tuple(self._synonyms(setting))
        value = self.live.given.get(setting.name, setting.default)
        return SettingView(
            setting.name,
            None if value is None or setting.is_sensitive else setting.text_of(value),
            synonyms[0].source if synonyms else DEFAULT,
            is_read_only=not setting.dynamic,
            synonyms=synonyms,
        )

    def _synonyms(self, setting: Setting) -> Iterator[Synonym]:
        """Yield every place that sets a value, the strongest first: layer by layer, and the names within each.

        Sources stronger than the setting's own name are not shown (``ConfigHelper.configSynonyms``): with a retention
        time in minutes ``log.retention.ms`` has no synonyms.
        """
        return itertools.dropwhile(lambda one: one.name != setting.name, self._places(setting))

    def _places(self, setting: Setting) -> Iterator[Synonym]:
        names = [setting.name, *(fallback.name for fallback in setting.fallbacks)]
        for source, layer in ((DYNAMIC_BROKER, self._own), (DYNAMIC_DEFAULT, self._default)):
            yield from (Synonym(source, name, layer[name]) for name in names if name in layer)
        for name in names:
            if name in self._static:
                setting = BROKER_SETTINGS[name]
                yield Synonym(STATIC, name, "" if setting.is_sensitive else setting.text_of(self._static[name]))
        for name in names:
            setting = self.live.table[name]
            if setting.default is not None:
                yield Synonym(DEFAULT, name, setting.text_of(setting.default))

    def topic_views(self, own: Mapping[str, str]) -> list[SettingView]:
        """Return the views, sorted by name, of a topic's settings over this broker's."""
        own, _ = usable_topic_settings(own)
        return self._entity_views(own, topic_values(own, self.live), DYNAMIC_TOPIC)

    def group_views(self, own: Mapping[str, str]) -> list[SettingView]:
        """Return the views, sorted by name, of a group's settings over this broker's."""
        own, _ = usable_group_configs(own)
        return self._entity_views(own, group_values(own, self.live), DYNAMIC_GROUP)

    def _entity_views(self, own: Mapping[str, str], values: Values, own_source: str) -> list[SettingView]:
        """Return the views of the settings of a topic or a group.

        Args:
            own: the settings set for it, as text.
            values: its settings in force.
            own_source: Kafka's source of its own settings. A group's setting that brokers do not have has its default
                as a synonym, a topic's has none (``ConfigHelper.createGroupConfigEntry``, ``createTopicConfigEntry``).
        """
        views: list[SettingView] = []
        for name, setting in sorted(values.table.items()):
            synonyms = [Synonym(own_source, name, own[name])] if name in own else []
            if setting.broker_key is not None:
                synonyms.extend(self._synonyms(BROKER_SETTINGS[setting.broker_key]))
            elif own_source == DYNAMIC_GROUP and setting.default is not None:
                synonyms.append(Synonym(DEFAULT, name, setting.text_of(setting.default)))
            source = synonyms[0].source if synonyms else DEFAULT
            text = own.get(name, setting.text_of(values[name]))
            views.append(SettingView(name, text, source, is_read_only=False, synonyms=tuple(synonyms)))
        return views


def _of_all(texts: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    """Return the settings that all brokers may have; report the rest."""
    narrow = sorted(filter(_is_of_one_broker, texts))
    if narrow:
        problems.append(f"Per-broker configs defined at default cluster level will be ignored: {', '.join(narrow)}")
    return {name: text for name, text in texts.items() if name not in narrow}


def _is_of_one_broker(name: str) -> bool:
    return name in _OF_ONE_BROKER or name.startswith("listener.name.")


def usable_topic_settings(texts: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return a topic znode's usable settings, and why others were omitted (rule 2)."""
    return _one_by_one(texts, topic_values)


def _one_by_one(
    texts: Mapping[str, str], check: Callable[[Mapping[str, str]], object]
) -> tuple[dict[str, str], list[str]]:
    """Return the settings that pass a check, and the others' problems."""
    usable: dict[str, str] = {}
    problems: list[str] = []
    for name, text in texts.items():
        try:
            check({name: text})
        except TidegaugeError as problem:
            problems.append(problem.message)
        else:
            usable[name] = text
    return usable, problems


class ListChange(NamedTuple):
    """An alteration of a list: parts that it gains, or parts that it loses (``AlterConfigOp.OpType``).

    Attributes:
        parts: added behind the others, unless present, or removed.
        adds: whether parts are added.
        inherited: the list, as text, if the entity has none of its own.
    """

    parts: tuple[str, ...]
    adds: bool
    inherited: str = ""

    def of(self, current: str | None) -> str:
        """Return the list's new text."""
        before = [part for part in (self.inherited if current is None else current).split(",") if part]
        if self.adds:
            return ",".join([*before, *(part for part in self.parts if part not in before)])
        return ",".join(part for part in before if part not in self.parts)


def altered(
    current: Mapping[str, str], changes: Mapping[str, str | ListChange], deleted: Collection[str]
) -> dict[str, str]:
    """Return an entity's altered settings; deleting an absent one has no effect.

    Raises:
        TidegaugeError: INVALID_REQUEST, a name is both set and deleted.
    """
    twice = sorted(name for name in deleted if name in changes)
    if twice:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {','.join(twice)} is both set and deleted"
        )
    new = {name: how if isinstance(how, str) else how.of(current.get(name)) for name, how in changes.items()}
    return {name: text for name, text in {**current, **new}.items() if name not in deleted}


def check_known(names: Iterable[str], table: Mapping[str, Setting]) -> None:
    """Check that the table has all these names.

    Raises:
        TidegaugeError: INVALID_CONFIG, with those that it lacks.
    """
    of_broker = table is BROKER_SETTINGS
    unknown = sorted(name for name in names if name not in table and not (of_broker and broker_setting(name)))
    if unknown:
        kind = "topic config name" if table is TOPIC_SETTINGS else "config name"
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG, f"Unknown {kind}: {', '.join(unknown)}{each_did_you_mean(unknown, table)}"
        )
