"""Facts about frames, headers and ApiVersions: a broker's reaction to frames that are no request."""

from __future__ import annotations

import struct
from typing import Any

from tests.wire_responses.probe import KEYS, LIMIT_SECONDS, NULL_CLIENT_ID, Peer, Probe, header, message

from tidegauge.kafka.apis import EXTENSIONS


def frames(probe: Probe) -> None:
    """Sizes, headers and bodies that are wrong."""
    probe.say("frames")
    metadata = KEYS["Metadata"]
    sent = {
        "size -1": struct.pack(">i", -1),
        "size 0": struct.pack(">i", 0),
        "size 200 MB": struct.pack(">i", 200_000_000),
        "HTTP": b"GET / HTTP/1.1\r\n\r\n",
        "gRPC": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "unknown key": header(999, 0),
        "negative key": header(-1, 0),
        "unknown version": header(metadata, 99),
        "negative version": header(metadata, -1),
        "header cut short": struct.pack(">ihh", 4, metadata, 0),
        "client id longer than the frame": struct.pack(">ihhih", 10, metadata, 0, 1, 99),
        "body cut short": header(metadata, 1),
        "a large array": _with_body(metadata, 1, struct.pack(">i", 2**31 - 2)),
        "a negative array": _with_body(metadata, 1, struct.pack(">i", -5)),
        "null where none is allowed": _with_body(KEYS["DeleteTopics"], 1, struct.pack(">ii", -1, 1)),
        "a string that is no UTF-8": _with_body(metadata, 1, struct.pack(">ih", 1, 2) + b"\xff\xfe"),
        "null client id": NULL_CLIENT_ID,
        "bytes behind the body": _with_body(metadata, 1, struct.pack(">i", 0) + b"more"),
        "UpdateMetadata cut short": header(KEYS["UpdateMetadata"], 0),
    }
    for name, data in sent.items():
        peer = probe.new_peer(0)
        peer.send_bytes(data)
        probe.note(f"frame: {name}", _did(peer))
        peer.close()


def _with_body(key: int, version: int, body: bytes) -> bytes:
    start = header(key, version)
    return struct.pack(">i", len(start) - 4 + len(body)) + start[4:] + body


def _did(peer: Peer) -> str:
    try:
        return "closed" if peer.frame(LIMIT_SECONDS) is None else "responded"
    except TimeoutError:
        return "open"


def versions(probe: Probe) -> None:
    """ApiVersions: advertised versions, and odd requests."""
    probe.say("ApiVersions")
    known = set(KEYS.values()) - EXTENSIONS
    for name, key in KEYS.items():
        if key in known:
            probe.note(f"ApiVersions {name}", probe.versions.get(key, "absent"))
    probe.note("ApiVersions others", sorted(key for key in probe.versions if key not in known))
    for version in range(5):
        named = {"client_software_name": "probe", "client_software_version": "1.0"} if version >= 3 else {}
        request = message("ApiVersions", **named)
        probe.case(f"ApiVersions v{version}", 0, version, request, _without_list)
    for name, software in {"empty": "", "a space": "a b", "a dash first": "-a", "a dot last": "a.", "one": "a"}.items():
        request = message("ApiVersions", client_software_name=software, client_software_version="1")
        probe.case(f"ApiVersions software name: {name}", 0, 3, request, _without_list)
    for version in (5, 99):
        peer = probe.new_peer(0)
        peer.send_bytes(header(KEYS["ApiVersions"], version))
        probe.note(f"ApiVersions v{version}, in the bytes of version 0", (peer.frame() or b"closed").hex())
        peer.close()
    peer = probe.new_peer(0)
    peer.send_bytes(header(KEYS["ApiVersions"], 3))
    probe.note("ApiVersions v3 without a body", _did(peer))
    peer.close()


def _without_list(found: Any) -> Any:
    tail = (found.throttle_time_ms, list(found.supported_features), found.finalized_features_epoch)
    return found.error_code, len(found.api_keys) > 0, tail, list(found.finalized_features), found.zk_migration_ready
