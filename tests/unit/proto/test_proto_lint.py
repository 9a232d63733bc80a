"""The .proto files keep their own rules: comments everywhere, units in names, no magic -1, one word per thing."""

import re
from pathlib import Path

import pytest

PROTO = Path(__file__).parents[3] / "proto" / "tidegauge" / "v1"
FILES = sorted(PROTO.glob("*.proto"))
MEMBER = re.compile(
    r"^\s+(?:optional |repeated )?(?:map<[^>]+>|[\w.]+)\s+(\w+)\s*=\s*-?\d+;|^\s+rpc (\w+)\(|^\s+[A-Z_]+ = "
)
BLOCK = re.compile(r"^(message|service|enum) (\w+)")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_everything_is_commented(path):
    lines = path.read_text().splitlines()
    bare = [
        f"{path.name}:{number + 1}: {line.strip()}"
        for number, line in enumerate(lines)
        if (MEMBER.match(line) or BLOCK.match(line)) and not lines[number - 1].strip().startswith("//")
    ]
    assert bare == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_begins_with_what_it_is_for(path):
    assert path.read_text().startswith("// ")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_names(path):
    text = path.read_text()
    fields = re.findall(r"(\w+)\s*=\s*\d+;", re.sub(r"enum \w+ \{.*?\n\}", "", text, flags=re.DOTALL))
    assert [name for name in fields if name != name.lower()] == []
    assert [name for name in fields if name in {"leo", "hw", "ts", "id", "msg", "num"}] == []
    assert [name for name in fields if re.search(r"(timestamp|timeout|wait|interval)$", name)] == [], "units last: _ms"


def test_each_rpc_has_its_own_request_and_response():
    """One message pair for an rpc, so that either can grow alone; the streams and the two askers of one question
    share theirs on purpose."""
    shared = {"ProduceRequest", "ProduceResponse", "OffsetsForLeaderEpochRequest", "OffsetsForLeaderEpochResponse"}
    seen: set[str] = set()
    for path in FILES:
        for pair in re.findall(r"rpc \w+\((?:stream )?(\w+)\) returns \((?:stream )?(\w+)\)", path.read_text()):
            for name in pair:
                assert name.endswith(("Request", "Response"))
                assert name in shared or name not in seen, name
                seen.add(name)


def test_enums_begin_with_unspecified_or_kafkas_none():
    for path in FILES:
        for name, first in re.findall(r"enum (\w+) \{\s*(?://[^\n]*\n\s*)*([A-Z_]+) = 0;", path.read_text()):
            assert first.endswith(("_UNSPECIFIED", "ERROR_CODE_NONE")), name
