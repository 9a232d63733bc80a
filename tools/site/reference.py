"""The reference that the site adds to docs/: from docstrings, verbs, the OpenAPI document and .proto files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

import tidegauge_client
from tidegauge_client import sync
from tidegauge_client.cli.main import in_sections, root
from tidegauge_lab.control.endpoints import document

ROOT = Path(__file__).parents[2]
TITLE = "API"
PLUGIN = "tidegauge_lab.pytest_plugin"
Json = dict[str, Any]


def pages() -> dict[str, str]:
    """Return the text of each page by its place in the site."""
    return {
        "api/client.md": client(),
        "api/pytest.md": plugin(),
        "api/http.md": http(document()),
        "api/verbs.md": verbs(),
        "api/grpc.md": grpc({path.name: path.read_text(encoding="utf-8") for path in protos()}),
    }


def client() -> str:
    """Return the public names of ``tidegauge_client``, from their docstrings."""
    homes = {name: getattr(tidegauge_client, name).__module__ for name in tidegauge_client.__all__}
    return "\n\n".join(
        [
            "# Python client",
            "What `tidegauge_client` exports. The classes are asynchronous; `tidegauge_client.sync`, at the end, has"
            " the same for scripts without an event loop. Any Kafka client works, too: [clients](../clients.md).",
            *(f"::: {home}.{name}" for name, home in homes.items()),
            *(f"::: {sync.__name__}.{name}" for name in sync.__all__),
        ]
    )


def plugin() -> str:
    """Return the pytest plugin's fixtures and cluster, from their docstrings."""
    return "\n\n".join(
        [
            "# pytest plugin",
            "The fixtures, and the cluster that `tidegauge_cluster` gives a test; `tidegauge_cluster.aio` is the same"
            " for asyncio tests. How to use them: [a cluster in your tests](../guide/pytest.md).",
            f"::: {PLUGIN}.plugin.tidegauge_cluster",
            f"::: {PLUGIN}.plugin.tidegauge_topic",
            f"::: {PLUGIN}.plugin.tidegauge_options",
            f"::: {PLUGIN}.options.TidegaugeOptions",
            f"::: {PLUGIN}.cluster.Cluster",
            f"::: {PLUGIN}.aio.AsyncCluster",
            f"::: {PLUGIN}.conditions.NotSoError",
        ]
    )


def protos() -> list[Path]:
    """Return the .proto files, the services first."""
    found = (ROOT / "proto" / "tidegauge" / "v1").glob("*.proto")
    return sorted(found, key=lambda path: ("_service" not in path.name, path.name))


def grpc(files: Mapping[str, str]) -> str:
    """Return the .proto files, whose comments are the reference."""
    parts = ["# gRPC", "The services and messages of package `tidegauge.v1`, as brokers, clients and tools use them."]
    parts += [f"## {name}\n\n```protobuf\n{text.strip()}\n```" for name, text in files.items()]
    return "\n\n".join(parts)


def verbs() -> str:
    """Return the help of every verb, as ``tidegauge VERB --help`` prints it."""
    parts = [
        "# Verbs",
        "The help of every verb, as `tidegauge VERB --help` prints it. What holds for all of them:"
        " [the command line](../command-line.md).",
    ]
    with click.Context(root, info_name="tidegauge", **root.context_settings) as above:
        assert isinstance(root, click.Group)
        for title, names in in_sections(root.list_commands(above)):
            commands = [(name, command) for name in names if (command := root.get_command(above, name)) is not None]
            if commands:
                parts.append(f"## {title}")
                parts += [part for name, command in commands for part in _help(command, name, above)]
    return "\n\n".join(parts)


def _help(command: click.Command, name: str, above: click.Context) -> Iterator[str]:
    if command.hidden:
        return
    with click.Context(command, info_name=name, parent=above, max_content_width=100, terminal_width=100) as context:
        yield f"### {context.command_path.removeprefix('tidegauge ')}"
        yield f"```text\n{command.get_help(context)}\n```"
        if isinstance(command, click.Group):
            for below, one in command.commands.items():
                yield from _help(one, below, context)


def http(interface: Json) -> str:
    """Return an OpenAPI document as a page."""
    info = interface["info"]
    parts = [
        "# HTTP interface",
        f"{info['description']} How to use it: [steering over HTTP](../steering.md). This page is drawn from the"
        f" OpenAPI {interface['openapi']} document that a server gives at `GET /v1/openapi.json`.",
    ]
    for path, operations in interface["paths"].items():
        for method, operation in operations.items():
            parts += _operation(f"{method.upper()} {path}", operation)
    parts.append("## Schemas")
    for name, schema in interface["components"]["schemas"].items():
        parts += [f"### {name}", *_schema(schema)]
    return "\n\n".join(parts)


def _operation(title: str, operation: Json) -> Iterator[str]:
    yield f"## {title}"
    yield f"{operation['summary']}."
    if parameters := operation.get("parameters"):
        lines = ["| parameter | in | type | |", "|---|---|---|---|"]
        for one in parameters:
            name = f"`{one['name']}`" + (" (required)" if one.get("required") else "")
            lines.append(f"| {name} | {one['in']} | {kind(one['schema'])} | {_cell(one.get('description', ''))} |")
        yield "\n".join(lines)
    if body := operation.get("requestBody"):
        yield "Body" + ("" if body.get("required") else " (optional)") + ":"
        yield from _schema(body["content"]["application/json"]["schema"])
    lines = ["| status | |", "|---|---|"]
    for status, one in operation["responses"].items():
        schema = one["content"]["application/json"]["schema"]
        lines.append(f"| {status} | {_cell(one['description'])}{': ' + kind(schema) if '$ref' in schema else ''} |")
    yield "\n".join(lines)


def _schema(schema: Json) -> Iterator[str]:
    """Yield a schema's description, and its fields as a table if it has any."""
    if "description" in schema:
        yield str(schema["description"])
    if not schema.get("properties"):
        yield kind(schema)
        return
    required = schema.get("required", ())
    lines = ["| field | type | |", "|---|---|---|"]
    for name, one in schema["properties"].items():
        shown = f"`{name}`" + (" (required)" if name in required else "")
        lines.append(f"| {shown} | {kind(one)} | {_cell(one.get('description', ''))} |")
    yield "\n".join(lines)


def kind(schema: Any) -> str:
    """Return a schema in a few words: its type, its values, its limits."""
    if not isinstance(schema, dict) or not schema:
        return "anything"
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower().replace('.', '')})"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    for several in ("oneOf", "anyOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(map(kind, schema[several])))
    name = schema.get("type", "anything")
    names = " or ".join(name) if isinstance(name, list) else name
    limits = [f"{words} {schema[key]}" for key, words in _LIMITS.items() if key in schema]
    if name == "array":
        names = f"list of {kind(schema.get('items'))}"
    elif name == "object":
        names = _of_object(schema)
    return names + (f" ({', '.join(limits)})" if limits else "")


_LIMITS = {"minimum": "at least", "maximum": "at most", "default": "default", "minItems": "items: at least"}


def _of_object(schema: Json) -> str:
    if fields := schema.get("properties"):
        return "{" + ", ".join(f"`{name}`: {kind(one)}" for name, one in fields.items()) + "}"
    values = schema.get("additionalProperties")
    return f"object of {kind(values)}" if isinstance(values, dict) and values else "object"


def _cell(text: Any) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")
