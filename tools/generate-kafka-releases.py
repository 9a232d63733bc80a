#!/usr/bin/env python3
"""Writes which versions of which APIs the brokers of Kafka's releases serve; --check only compares.

They come from the message definitions inside kafka-clients' jar of the last patch of each release, from Maven Central:
what a broker in ZooKeeper mode listens to before Kafka 4, and a broker in KRaft mode from then on, without
versions that are not stable yet. Without Maven or its repository ``--check`` says so and passes.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from fetched import Unavailable  # noqa: E402 - found through the path above
from generated_files import write_or_compare  # noqa: E402 - the same
from maven import Artifact, resolve  # noqa: E402 - the same

TARGET = "proto/tidegauge/kafka/release_versions.py"
PATCHES = (
    *("2.8.2", "3.0.2", "3.1.2", "3.2.3", "3.3.2", "3.4.1", "3.5.2", "3.6.2", "3.7.2", "3.8.1", "3.9.1"),
    *("4.0.1", "4.1.2", "4.2.1", "4.3.1"),
)
HEAD = '''"""Which APIs the brokers of Kafka's releases serve, and in which versions: tools/generate-kafka-releases.py.

Of the last patch of each release: ``KEY:FIRST-LAST``, in ZooKeeper mode before Kafka 4, in KRaft mode from then on.
"""

from __future__ import annotations

VERSIONS: dict[str, str] = {
'''


def versions(patch: str) -> dict[int, tuple[int, int]]:
    """Return the lowest and the highest stable version of each API, by key.

    Raises:
        Unavailable: no Maven, or it can't reach its repository.
    """
    name, listener = f"kafka-clients-{patch}", "broker" if patch.startswith("4") else "zkBroker"
    jar_path = resolve(name, [Artifact("org.apache.kafka", "kafka-clients", patch, alone=True)]) / f"{name}.jar"
    found: dict[int, tuple[int, int]] = {}
    with zipfile.ZipFile(jar_path) as jar:
        for entry in jar.namelist():
            if not (entry.startswith("common/message/") and entry.endswith("Request.json")):
                continue
            text = re.sub(r"^\s*//.*$", "", jar.read(entry).decode(), flags=re.MULTILINE).strip()
            definition, _ = json.JSONDecoder().raw_decode(text)  # one release has a brace too many
            first, _, last = definition["validVersions"].partition("-")
            if listener not in definition.get("listeners", ()) or not first.isdigit():
                continue
            highest = int(last or first) - bool(definition.get("latestVersionUnstable"))
            if int(first) <= highest:
                found[definition["apiKey"]] = int(first), highest
    return found


def module() -> str:
    """Return the text of the module."""
    lines = [HEAD]
    for patch in PATCHES:
        ranges = [f"{key}:{first}-{last}" for key, (first, last) in sorted(versions(patch).items())]
        lines.append(f'    "{patch.rpartition(".")[0]}": (\n')
        for at in range(0, len(ranges), 10):
            space = " " if at + 10 < len(ranges) else ""
            lines.append(f'        "{" ".join(ranges[at : at + 10])}{space}"\n')
        lines.append("    ),\n")
    return "".join([*lines, "}\n", '"""By the release."""\n'])


def main() -> int:
    """Write, or compare and return 1 where the file differs."""
    try:
        text = module()
    except Unavailable as problem:
        sys.stderr.write(f"Kafka's message definitions can't be had here, nothing was compared: {problem}\n")
        return 0 if "--check" in sys.argv else 1
    return write_or_compare(sys.argv, {TARGET: lambda: text}, "Kafka's releases define them", "make kafka-messages")


if __name__ == "__main__":
    raise SystemExit(main())
