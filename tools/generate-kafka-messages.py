#!/usr/bin/env python3
"""Writes the messages of Kafka's protocol and the records of its logs; --check only compares.

Targets, below proto/tidegauge/kafka:

- ``messages``, from the message definitions inside kafka-clients' jar, and ``coordinator``, from those inside the
  coordinators' jars, of the release that ZooKeeper mode is true to; the APIs and records of consumer groups (KIP-848)
  and share groups (KIP-932), an extension of that mode, come from the other release, and so do the fields of later
  versions that brokers in KRaft mode serve;
- ``kraft/messages`` and ``kraft/control_messages``, from kafka-clients' jar, and ``metadata_records``, from
  kafka-metadata's, of the release that KRaft mode is true to (docs/adr/0024-two-generated-protocols.md).

Names, types, versions, tags and defaults are taken; the sentences of the definitions are not. The jars come from Maven
Central, as for ``make bench``; ``--definitions DIRECTORY`` names a directory instead, which has the JSON files in one
subdirectory for each release. Without Maven or its repository ``--check`` says so and passes: the recorded frames and
files in tests/unit/kafka hold the messages too.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from fetched import Unavailable  # noqa: E402 - found through the path above
from maven import Artifact, resolve  # noqa: E402 - found through the path above

from tidegauge.kafka.apis import APIS, EXTENSIONS, NEVER, Api, snake  # noqa: E402 - the same
from tidegauge.kafka.kraft.apis import KRAFT_APIS  # noqa: E402 - the same
from tidegauge.kafka.kraft.broker_apis import LATER  # noqa: E402 - the same
from tidegauge.kafka.kraft.control_types import CONTROL_TYPES  # noqa: E402 - the same
from tidegauge.kafka.kraft.json_text import json_name  # noqa: E402 - the same
from tidegauge.kafka.kraft.record_types import RECORD_TYPES as METADATA_TYPES  # noqa: E402 - the same

KAFKA = "3.9.1"
"""The release that ZooKeeper mode is true to."""
KAFKA_KRAFT = "4.3.1"
"""The release that KRaft mode is true to."""
TARGET = ROOT / "proto/tidegauge/kafka"
MESSAGES, RECORDS = "messages", "coordinator"
KRAFT_MESSAGES, CONTROL, METADATA = "kraft/messages", "kraft/control_messages", "metadata_records"
DIRECTORIES = (MESSAGES, RECORDS, KRAFT_MESSAGES, CONTROL, METADATA)
JARS = {
    KAFKA: ("kafka-clients", "kafka-group-coordinator"),
    KAFKA_KRAFT: (
        "kafka-clients",
        "kafka-metadata",
        "kafka-group-coordinator",
        "kafka-share-coordinator",
        "kafka-transaction-coordinator",
    ),
}
RECORD_TYPES = ("OffsetCommit", "GroupMetadata")
"""Records that the coordinators write: a definition of a key and one of a value each."""
EXTENSION_RECORD_TYPES = (
    "TransactionLog",
    "ConsumerGroupMetadata",
    "ConsumerGroupPartitionMetadata",
    "ConsumerGroupMemberMetadata",
    "ConsumerGroupTargetAssignmentMetadata",
    "ConsumerGroupTargetAssignmentMember",
    "ConsumerGroupCurrentMemberAssignment",
    "ConsumerGroupRegularExpression",
    "ShareGroupMetadata",
    "ShareGroupMemberMetadata",
    "ShareGroupTargetAssignmentMetadata",
    "ShareGroupTargetAssignmentMember",
    "ShareGroupCurrentMemberAssignment",
    "ShareGroupStatePartitionMetadata",
    "ShareSnapshot",
    "ShareUpdate",
)
"""What the later release has of its own: records of consumer groups (KIP-848) and share groups (KIP-932), and tagged
fields in those of transactions (KIP-890)."""
LATER_VALUES = ("OffsetCommitValue",)
"""Values to which the later release adds a tagged field, in a version that the release before has."""
MAX_FACTS = 117
"""Length of a docstring's first line, without its quotes."""
SPECIFIERS = {"bool": "boolean", "bytes": "binary"}
PYTHON_TYPES = {"bool": "bool", "string": "str", "bytes": "bytes", "uuid": "bytes", "float64": "float"}
Definition = Mapping[str, Any]


def definitions(release: str, directory: Path | None) -> dict[str, Definition]:
    """Read all message definitions of a release, by their names."""
    found: dict[str, Definition] = {}
    for text in _texts(release, directory):
        definition = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
        found[definition["name"]] = definition
    return found


def _texts(release: str, directory: Path | None) -> Iterator[str]:
    if directory is not None:
        for path in sorted((directory / release).glob("*.json")):
            yield path.read_text(encoding="utf-8")
        return
    for artifact in JARS[release]:
        name = f"{artifact}-{release}"
        with zipfile.ZipFile(
            resolve(name, [Artifact("org.apache.kafka", artifact, release, alone=True)]) / f"{name}.jar"
        ) as jar:
            for entry in jar.namelist():
                if entry.startswith(("common/message/", "common/metadata/")) and entry.endswith(".json"):
                    yield jar.read(entry).decode()


class Module:
    """One module: an API's request and response, or a record's key and value, and the structs inside them."""

    def __init__(self) -> None:
        self.classes: dict[str, str] = {}
        self.used: set[str] = set()
        self._common: dict[str, Definition] = {}

    def add(self, message: Definition) -> None:
        """Add a message and its structs, inner ones first."""
        self._common = {struct["name"]: struct for struct in message.get("commonStructs", [])}
        self._add_struct(message["name"], message["fields"])

    def _add_struct(self, name: str, fields: list[Definition]) -> str:
        """Add a struct and return its name, which is another one where the request has a different struct of it."""
        lines = [f"    {snake(field['name'])}: {self._field(field)}" for field in fields] or ["    pass"]
        for candidate in (name, f"Response{name}"):
            text = "\n".join(["@dataclass(slots=True)", f"class {candidate}:", *lines])
            if self.classes.setdefault(candidate, text) == text:
                return candidate
        raise SystemExit(f"Three different structs are named {name}")

    def _field(self, field: Definition) -> str:
        tagged = field.get("taggedVersions")
        kind, versions, nullable = field["type"], field.get("versions", tagged), field.get("nullableVersions", "")
        if tagged is not None and tagged != versions:
            raise SystemExit(f"{field['name']} is tagged in a part of its versions only")
        arguments: list[str] = []
        is_array = kind.startswith("[]")
        element = kind.removeprefix("[]")
        is_struct = element[0].isupper()
        if is_struct:
            element = self._add_struct(element, field.get("fields") or self._common[element]["fields"])
            arguments.append(element)
        elif is_array:
            arguments.append(repr(element))
        if versions != "0+":
            arguments.append(repr(versions))
        if nullable:
            arguments.append(f"nullable={nullable!r}")
        default = None if is_struct and not is_array else _default(field)
        if default is not None:
            arguments.append(f"default={default}")
        if "tag" in field:
            arguments.append(f"tag={field['tag']}")
        specifier = "array" if is_array else "struct" if is_struct else SPECIFIERS.get(element, element)
        self.used.add(specifier)
        hint = element if is_struct else "Records" if element == "records" else PYTHON_TYPES.get(element, "int")
        if is_array:
            hint = f"Sequence[{hint}]"
        if nullable or (is_struct and not is_array) or element == "records" or default == "None":
            hint += " | None"
        return f"{hint} = {specifier}({', '.join(arguments)})"

    def text(self, facts: str) -> str:
        """Return the module; ``facts`` is the first line of its docstring."""
        body = "\n\n\n".join(self.classes.values())
        imports = []
        if self.used:
            imports.append(f"from tidegauge.kafka.fields import {', '.join(sorted(self.used))}")
        if "Sequence[" in body:
            imports.insert(0, "from collections.abc import Sequence")
        if "Records |" in body:
            imports.append("from tidegauge.kafka.records import Records")
        imports.append("from tidegauge.lazy_dataclasses import dataclass")
        head = f'"""{facts}\n\nGenerated: make kafka-messages.\n"""'
        return "\n".join([head, "", "from __future__ import annotations", "", *imports, "", "", body, ""])


def _default(field: Definition) -> str | None:
    """Return the default as Python source, None if the specifier's."""
    default = field.get("default")
    if default is None:
        return None
    if default == "null":
        return "None"
    if field["type"] == "string":
        return repr(default) if default else None
    if field["type"] == "bool":
        return "True" if str(default).lower() == "true" else None
    number = int(str(default), 0)
    return str(number) if number else None


def _docstring(text: str) -> str:
    return f'"""{text}"""\n'


def _versions(definition: Definition) -> str:
    flexible = definition["flexibleVersions"]
    what = f"flexible in {flexible}" if flexible != "none" else "never flexible"
    return f"versions {definition['validVersions']}, {what}"


def _module(*messages: Definition) -> Module:
    module = Module()
    for message in messages:
        module.add(message)
    return module


def modules(found: Mapping[str, Definition], later: Mapping[str, Definition]) -> dict[str, str]:
    """Return the text of every module of ZooKeeper mode by its path.

    Args:
        found: the definitions of the release that the mode is true to.
        later: the definitions of its extensions' release, and the later versions of KRaft mode's brokers.
    """
    found = dict(found)
    for key in LATER:
        for name in (f"{APIS[key].name}Request", f"{APIS[key].name}Response"):
            last = int(found[name]["validVersions"].rpartition("-")[2])
            merged = _with_later(found[name]["fields"], later[name]["fields"], last)
            found[name] = {**found[name], "fields": merged}
    found |= {name: later[name] for name in LATER_VALUES}
    own = {key: api for key, api in APIS.items() if key not in EXTENSIONS}
    extensions = {key: APIS[key] for key in EXTENSIONS}
    texts = {
        f"{MESSAGES}/__init__.py": _docstring("One module per API: requests and responses of Kafka's protocol."),
        f"{RECORDS}/__init__.py": _docstring("One module per type of record of Kafka's coordinators: key and value."),
        **dict(_of_apis(MESSAGES, own, KAFKA, found)),
        **dict(_of_apis(MESSAGES, extensions, KAFKA_KRAFT, later)),
        **dict(_of_coordinators(RECORD_TYPES, KAFKA, found)),
        **dict(_of_coordinators(EXTENSION_RECORD_TYPES, KAFKA_KRAFT, later)),
    }
    return {name: _formatted(text) for name, text in texts.items()}


def _with_later(fields: list[Definition], later: list[Definition], last: int) -> list[Definition]:
    """Return the fields of a struct, merged with a later release's new ones.

    A field that a later version drops ends there.
    """
    merged = list(fields)
    at = 0
    for field in later:
        known = next((index for index, one in enumerate(merged) if one["name"] == field["name"]), None)
        if known is not None:
            own, upper = merged[known], field["versions"].partition("-")[2]
            if own["versions"].endswith("+") and upper.isdigit() and int(upper) >= last:
                merged[known] = {**own, "versions": f"{own['versions'].rstrip('+')}-{upper}"}
            inner = merged[known].get("fields")
            if inner is not None:
                merged[known] = {**merged[known], "fields": _with_later(inner, field["fields"], last)}
            at = known + 1
        elif int(field["versions"].partition("-")[0].rstrip("+")) > last:
            merged.insert(at, field)
            at += 1
    return merged


def _of_coordinators(
    records: Iterable[str], release: str, found: Mapping[str, Definition]
) -> Iterator[tuple[str, str]]:
    """Yield path and text of the module of each type of record."""
    for record in records:
        key, value = found[f"{record}Key"], found[f"{record}Value"]
        facts = f"{record} of Kafka {release}: key {_versions(key)}; value {_versions(value)}."
        if len(facts) > MAX_FACTS:
            facts = f"{record} of Kafka {release}.\n\nKey {_versions(key)}; value {_versions(value)}."
        if value["name"] in LATER_VALUES and release == KAFKA:
            facts += f"\n\nThe value is as of Kafka {KAFKA_KRAFT}."
        yield f"{RECORDS}/{snake(record)}.py", _module(key, value).text(facts)


def kraft_modules(found: Mapping[str, Definition]) -> dict[str, str]:
    """Return the text of every module of KRaft mode's release by its path."""
    texts = {
        f"{KRAFT_MESSAGES}/__init__.py": _docstring("One module per API of a KRaft quorum: requests and responses."),
        f"{CONTROL}/__init__.py": _docstring("One module per control record of Kafka's metadata log."),
        f"{METADATA}/__init__.py": _docstring("One module per record of Kafka's metadata log."),
        **dict(_of_apis(KRAFT_MESSAGES, KRAFT_APIS, KAFKA_KRAFT, found)),
    }
    for control in CONTROL_TYPES.values():
        definition = found[control.message]
        _require(control.message, definition, (control.message, f"0-{control.last}"))
        texts[f"{CONTROL}/{snake(control.message)}.py"] = _of_record(definition)
    for metadata in METADATA_TYPES.values():
        definition = found[metadata.message]
        _require(metadata.message, definition, (metadata.message, f"0-{metadata.last}"), metadata.key)
        texts[f"{METADATA}/{snake(metadata.message)}.py"] = _of_record(definition)
    known = {metadata.key for metadata in METADATA_TYPES.values()}
    missing = [name for name, one in found.items() if one["type"] == "metadata" and one["apiKey"] not in known]
    if missing:
        raise SystemExit(f"The table of metadata records lacks {', '.join(missing)}")
    return {name: _formatted(text) for name, text in texts.items()}


def _of_apis(
    directory: str, apis: Mapping[int, Api], release: str, found: Mapping[str, Definition]
) -> Iterator[tuple[str, str]]:
    """Yield path and text of the module of each API."""
    for api in apis.values():
        request, response = found[f"{api.name}Request"], found[f"{api.name}Response"]
        if request["apiKey"] != api.key:
            raise SystemExit(f"{api.name} has key {request['apiKey']}")
        if request["flexibleVersions"] != ("none" if api.flexible_from == NEVER else f"{api.flexible_from}+"):
            raise SystemExit(f"{api.name} is flexible in {request['flexibleVersions']}")
        facts = f"{api.name} (key {api.key}) of Kafka {release}: {_versions(request)}."
        if directory == MESSAGES and api.key in LATER:
            facts += f"\n\nThe versions up to {LATER[api.key]} are those of Kafka {KAFKA_KRAFT}."
        yield f"{directory}/{snake(api.name)}.py", _module(request, response).text(facts)


def _of_record(definition: Definition) -> str:
    return _module(definition).text(f"{definition['name']} of Kafka {KAFKA_KRAFT}: {_versions(definition)}.")


def _require(name: str, definition: Definition, expected: tuple[str, str], key: int | None = None) -> None:
    """End the program if a table's row differs from the definition, or a JSON name does not follow from Python's."""
    first, _, last = definition["validVersions"].partition("-")
    found = (definition["name"], f"{first}-{last or first}")
    if found != expected or definition["flexibleVersions"] != "0+" or (key is not None and key != definition["apiKey"]):
        raise SystemExit(f"The table's row of {name} differs from its definition: {found}")
    for field in _all_fields(definition):
        if json_name(snake(field)) != field[0].lower() + field[1:]:
            raise SystemExit(f"json_name does not know the name {field} of {name}")


def _all_fields(definition: Definition) -> Iterator[str]:
    for field in definition.get("fields", []):
        yield field["name"]
        yield from _all_fields(field)
    for struct in definition.get("commonStructs", []):
        yield from _all_fields(struct)


def _formatted(text: str) -> str:
    ruff = [str(Path(sys.executable).parent / "ruff"), "--config", str(ROOT / "pyproject.toml")]
    for step in (["check", "--select", "I", "--fix", "--quiet", "-"], ["format", "--quiet", "-"]):
        command = [ruff[0], step[0], *ruff[1:], "--stdin-filename", str(TARGET / MESSAGES / "x.py"), *step[1:]]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> int:
    """Write, or compare and return 1 where a file differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--definitions", type=Path)
    options = parser.parse_args()
    try:
        later = definitions(KAFKA_KRAFT, options.definitions)
        wanted = modules(definitions(KAFKA, options.definitions), later) | kraft_modules(later)
    except Unavailable as problem:
        sys.stderr.write(f"Kafka's message definitions can't be had here, nothing was compared: {problem}\n")
        return 0 if options.check else 1
    present = {
        f"{directory}/{path.name}": path.read_text(encoding="utf-8")
        for directory in DIRECTORIES
        for path in (TARGET / directory).glob("*.py")
    }
    differing = sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))
    if options.check:
        if differing:
            names = ", ".join(differing)
            sys.stderr.write(f"Not as Kafka {KAFKA} or {KAFKA_KRAFT} defines them: {names}. Run: make kafka-messages\n")
        return 1 if differing else 0
    for directory in DIRECTORIES:
        (TARGET / directory).mkdir(exist_ok=True)
    for name in differing:
        if name in wanted:
            (TARGET / name).write_text(wanted[name], encoding="utf-8")
        else:
            (TARGET / name).unlink()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
