"""``describe-config`` and ``alter-config``, in the words of kafka-configs.sh.

``--entity-type topics|groups|brokers`` with ``--entity-name`` or ``--entity-default``, or Kafka's short forms
``--topic``, ``--group``, ``--broker``, ``--broker-defaults``. ``alter-config`` returns when every live broker applies
the change; one invalid key or value, and nothing is changed. Lines and sentences follow ConfigCommand; an entity
that does not exist is an error here, but for a group: its settings may be set before it exists.
Source: ConfigCommand.describeResourceConfig, alterConfig, parseConfigsToBeAdded.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from tidegauge.cli import print_json, print_line, print_text, reports_errors, say, verb_options
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.settings import BROKER_SETTINGS, read_properties
from tidegauge_client.admin import Admin
from tidegauge_client.admin_configs import ConfigEntry
from tidegauge_client.cli.common import JSON, run, servers
from tidegauge_client.kafka_brokers import note, own_words

TOPICS = "topics"
BROKERS = "brokers"
GROUPS = "groups"
_ENTITY_OPTIONS = ("entity_type", "entity_name", "entity_default", "topic", "group", "broker", "broker_defaults")
_COMMA_OUTSIDE_BRACKETS = re.compile(r",(?=[^\]]*(?:\[|$))")


class Entity(NamedTuple):
    """The entity whose settings are meant; without a name all brokers."""

    kind: str
    name: str | None

    @property
    def one(self) -> str:
        """Return ``topic``, ``group`` or ``broker``."""
        return self.kind.removesuffix("s")


def entity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name an entity; the command gets it as ``asked`` (``entity_of``)."""

    @functools.wraps(command)
    def with_entity(**options: Any) -> Any:
        asked = entity_of(**{name: options.pop(name) for name in _ENTITY_OPTIONS})
        return command(asked=asked, **options)

    command_with_options: Callable[..., Any] = with_entity
    for option in (
        click.option("--broker-defaults", is_flag=True, help="The settings of all brokers."),
        click.option("--broker", type=int, metavar="ID", help="A broker."),
        click.option("--group", metavar="ID", help="A consumer group; it need not exist."),
        click.option("--topic", metavar="NAME", help="A topic."),
        click.option("--entity-default", is_flag=True, help="With --entity-type brokers: the settings of all brokers."),
        click.option("--entity-name", metavar="NAME", help="A topic's name, a group's id, or a broker's id."),
        click.option(
            "--entity-type",
            type=click.Choice([TOPICS, GROUPS, BROKERS]),
            help="The kind of entity that has the settings.",
        ),
    ):
        command_with_options = option(command_with_options)
    return command_with_options


def entity_of(
    entity_type: str | None,
    entity_name: str | None,
    entity_default: bool,
    topic: str | None,
    group: str | None,
    broker: int | None,
    broker_defaults: bool,
) -> tuple[str, Entity | None]:
    """Return the kind and, if one was named, the entity.

    Raises:
        click.UsageError: no entity, two, or an impossible one was named.
    """
    said = [
        *([Entity(entity_type, entity_name)] if entity_type is not None and entity_name is not None else []),
        *([Entity(BROKERS, None)] if entity_default else []),
        *([Entity(TOPICS, topic)] if topic is not None else []),
        *([Entity(GROUPS, group)] if group is not None else []),
        *([Entity(BROKERS, str(broker))] if broker is not None else []),
        *([Entity(BROKERS, None)] if broker_defaults else []),
    ]
    if len(said) > 1:
        raise click.UsageError("Only one entity can be described or altered at a time")
    if entity_name is not None and entity_type is None:
        raise click.UsageError("--entity-name needs --entity-type topics, groups or brokers")
    if entity_default and entity_type != BROKERS:
        raise click.UsageError(
            "--entity-default needs --entity-type brokers: topics and groups have no default of their own"
        )
    if said and entity_type not in {None, said[0].kind}:
        raise click.UsageError(f"--entity-type {entity_type} contradicts the entity that is named")
    kind = said[0].kind if said else entity_type
    if kind == GROUPS and not said:
        raise click.UsageError("Name the group: --group ID; settings of all groups can't be described at once")
    if kind is None:
        raise click.UsageError(
            "At least one entity type must be specified: --entity-type topics, groups or brokers, --topic, --group, "
            "--broker or --broker-defaults"
        )
    if not said:
        return kind, None
    if kind == BROKERS and said[0].name is not None and not re.fullmatch(r"\d+", said[0].name):
        raise click.UsageError(f"The entity name for brokers must be a valid integer broker id, found: {said[0].name}")
    return kind, said[0]


def parse_changes(texts: Sequence[str]) -> dict[str, str]:
    """Read ``k1=v1,k2=[v1,v2]``; brackets hold commas together.

    Raises:
        ValueError: Kafka's sentence.
    """
    changes: dict[str, str] = {}
    for text in texts:
        for part in _COMMA_OUTSIDE_BRACKETS.split(text):
            name, separator, value = part.partition("=")
            if not separator or not name.strip():
                raise ValueError(
                    'Invalid entity config: all configs to be added must be in the format "key=val" or "key=[v1,v2]", '
                    f"not '{part}'"
                )
            changes[name.strip()] = re.sub(r"[\[\]]", "", value).strip()
    return changes


def entry_line(entry: ConfigEntry) -> str:
    """Return Kafka's line for a setting; a sensitive value is not known."""
    secret = is_sensitive(entry.name)
    synonyms = ", ".join(
        f"{synonym.source}:{synonym.name}={_shown(None if secret else synonym.value)}" for synonym in entry.synonyms
    )
    return f"  {entry.name}={_shown(entry.value)} sensitive={str(secret).lower()} synonyms={{{synonyms}}}"


def is_sensitive(name: str) -> bool:
    """Return whether a setting is a secret, such as ssl.keystore.key."""
    setting = BROKER_SETTINGS.get(name)
    return setting is not None and setting.is_sensitive


def entity_lines(entity: Entity, entries: Sequence[ConfigEntry], *, everything: bool) -> Iterator[str]:
    """Return Kafka's lines for an entity."""
    if entity.name is None:
        yield f"Default configs for {entity.kind} in the cluster are:"
    else:
        yield f"{'All' if everything else 'Dynamic'} configs for {entity.one} {entity.name} are:"
    for entry in entries:
        yield entry_line(entry)


def entity_json(entity: Entity, entries: Sequence[ConfigEntry]) -> dict[str, Any]:
    """Return one entity: ``configs`` by name, and everything known of each under ``entries``."""
    return {
        "entity_type": entity.kind,
        "entity_name": entity.name,
        "configs": {entry.name: entry.value for entry in entries},
        "entries": [
            {
                "name": entry.name,
                "value": entry.value,
                "source": entry.source,
                "is_default": entry.is_default,
                "is_read_only": entry.is_read_only,
                "is_sensitive": is_sensitive(entry.name),
                "synonyms": [synonym._asdict() for synonym in entry.synonyms],
            }
            for entry in entries
        ],
    }


def _shown(value: str | None) -> str:
    return "null" if value is None else value


async def _entries(admin: Admin, entity: Entity, *, everything: bool) -> list[ConfigEntry]:
    """Return an entity's settings: all, or its own."""
    if entity.kind == TOPICS:
        assert entity.name is not None, "topics have no default"
        entries = await admin.describe_topic_settings(entity.name)
        own = "DYNAMIC_TOPIC_CONFIG"
    elif entity.kind == GROUPS:
        assert entity.name is not None, "groups have no default"
        entries = await admin.describe_group_settings(entity.name)
        own = "DYNAMIC_GROUP_CONFIG"
    else:
        entries = await admin.describe_broker_settings(None if entity.name is None else int(entity.name))
        own = "DYNAMIC_DEFAULT_BROKER_CONFIG" if entity.name is None else "DYNAMIC_BROKER_CONFIG"
    return [entry for entry in entries if everything or entry.source == own]


async def _entities(admin: Admin, kind: str, entity: Entity | None) -> list[Entity]:
    """Return the named entity, or all of the kind; reject unknown ones."""
    if kind == GROUPS:
        return [] if entity is None else [entity]
    if kind == TOPICS:
        topics = await admin.list_topics()
        if entity is None:
            return [Entity(TOPICS, name) for name in topics]
        known = topics
    else:
        info = await admin.metadata([])
        known = [str(broker) for broker in sorted(info.brokers)]
        if entity is None and info.kafka_brokers:
            say(note(info.kafka_brokers, "their own settings"))
        elif entity is not None and entity.name in set(map(str, info.kafka_brokers)):
            raise own_words(info.kafka_brokers[int(entity.name)], "kafka-configs.sh")
        if entity is None:
            return [*(Entity(BROKERS, name) for name in known), Entity(BROKERS, None)]
    if entity.name is not None and entity.name not in known:
        what = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if kind == TOPICS else ErrorCode.BROKER_NOT_AVAILABLE
        listing = "list-topics" if kind == TOPICS else "describe-cluster"
        raise TidegaugeError(
            what,
            f"The {entity.one} '{entity.name}' doesn't exist and doesn't have dynamic config; `tidegauge {listing}` "
            "shows what there is",
        )
    return [entity]


@click.command("describe-config")
@entity_options
@click.option("--all", "everything", is_flag=True, help="All settings in force, not only those set for the entity.")
@verb_options
@reports_errors
def describe_config(
    asked: tuple[str, Entity | None],
    everything: bool,
    bootstrap_server: str | None,
    directory: Path,
    output: str,
) -> None:
    """Show the dynamic settings of topics, a group or brokers, as kafka-configs.sh --describe does."""
    kind, entity = asked
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> list[tuple[Entity, list[ConfigEntry]]]:
        async with Admin(bootstrap) as admin:
            return [
                (one, await _entries(admin, one, everything=everything)) for one in await _entities(admin, kind, entity)
            ]

    described = run(work())
    if output == JSON:
        print_json({"entities": [entity_json(one, entries) for one, entries in described]})
        return
    for one, entries in described:
        for line in entity_lines(one, entries, everything=everything):
            print_line(line)


@click.command("alter-config")
@entity_options
@click.option("--add-config", multiple=True, metavar="K=V,K=[V,V]", help="Settings to set; may be repeated.")
@click.option(
    "--add-config-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A properties file of settings to set.",
)
@click.option("--delete-config", multiple=True, metavar="K,K", help="Settings to remove; may be repeated.")
@verb_options
@reports_errors
def alter_config(
    asked: tuple[str, Entity | None],
    add_config: Sequence[str],
    add_config_file: Path | None,
    delete_config: Sequence[str],
    bootstrap_server: str | None,
    directory: Path,
    output: str,
) -> None:
    """Change dynamic settings of a topic, a group, a broker or all brokers; wait until every broker applies them."""
    kind, entity = asked
    if entity is None:
        needed = "An entity name" if kind == TOPICS else "An entity-name or default entity"
        raise click.UsageError(f"{needed} must be specified to alter {kind}")
    if add_config and add_config_file is not None:
        raise click.UsageError("Only one of --add-config or --add-config-file must be specified")
    try:
        changes = parse_changes(add_config)
        if add_config_file is not None:
            changes = read_properties(add_config_file.read_text(encoding="utf-8"))
    except TidegaugeError as problem:
        raise click.UsageError(problem.message) from None
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None
    deleted = [name.strip() for text in delete_config for name in text.split(",") if name.strip()]
    if not changes and not deleted:
        raise click.UsageError("At least one of --add-config, --add-config-file, or --delete-config must be specified")
    bootstrap = servers(bootstrap_server, directory)
    change, applied = run(_alter(bootstrap, entity, changes, deleted))
    late = [broker_id for broker_id, has in applied.items() if not has]
    if late:
        say(f"Not applied yet by broker {', '.join(map(str, late))}: it does not respond, or is behind")
    if output == JSON:
        print_json(
            {
                "entity_type": entity.kind,
                "entity_name": entity.name,
                "added": changes,
                "deleted": deleted,
                "change": change,
                "applied_by": [broker_id for broker_id, has in applied.items() if has],
            }
        )
    elif entity.name is None:
        print_text(f"Completed updating default config for {entity.kind} in the cluster.")
    else:
        print_text(f"Completed updating config for {entity.one} {entity.name}.")


async def _alter(
    bootstrap: Sequence[str], entity: Entity, changes: Mapping[str, str], deleted: Sequence[str]
) -> tuple[int, Mapping[int, bool]]:
    async with Admin(bootstrap) as admin:
        if deleted:
            there = {entry.name for entry in await _entries(admin, entity, everything=False)}
            missing = [name for name in deleted if name not in there]
            if missing:
                raise TidegaugeError(
                    ErrorCode.INVALID_CONFIG,
                    f"Invalid config(s): {','.join(missing)}; a setting that is not set here can't be deleted",
                )
        if entity.kind == TOPICS:
            assert entity.name is not None, "topics have no default"
            change = await admin.alter_topic_settings(entity.name, changes, deleted)
        elif entity.kind == GROUPS:
            assert entity.name is not None, "groups have no default"
            change = await admin.alter_group_settings(entity.name, changes, deleted)
        else:
            broker_id = None if entity.name is None else int(entity.name)
            change = await admin.alter_broker_settings(broker_id, changes, deleted)
        return change, await admin.wait_for_change(change)
