"""A record of the log is one line: what a client sends can't look like a line of the broker's."""

from __future__ import annotations

import io
import logging

import pytest

from tidegauge.cluster_metadata.access_lists import Operation, ResourceType
from tidegauge.principal import Principal
from tidegauge_broker.security.acls.authorizer import AclAuthorizer, Rules
from tidegauge_broker.server.cluster.zookeeper.acl_store import AclStore
from tidegauge_broker.server.log_lines import OneLine
from tidegauge_broker.server.service.caller import Caller


@pytest.fixture
def written() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def log(written: io.StringIO) -> logging.Logger:
    handler = logging.StreamHandler(written)
    handler.setFormatter(OneLine())
    logger = logging.Logger("test", logging.INFO)  # noqa: LOG001 - no other module knows it
    logger.addHandler(handler)
    return logger


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\x1b[2K"])
def test_what_ends_a_line_is_escaped(end: str, log: logging.Logger, written: io.StringIO) -> None:
    log.info("Principal = %s is Denied", f"User:eve{end}[2026-11-29] INFO Principal = User:eve is Allowed")
    assert len(written.getvalue().splitlines()) == 1
    assert "User:eve\\" in written.getvalue()


def test_ordinary_texts_stay_as_they_are(log: logging.Logger, written: io.StringIO) -> None:
    log.info("Topic %s: größer,\t漢字 \\n", "märz")
    assert "Topic märz: größer,\t漢字 \\n (test)" in written.getvalue()


def test_a_traceback_follows_its_message_indented(log: logging.Logger, written: io.StringIO) -> None:
    try:
        raise ValueError("no such topic:\n[2026-11-29] INFO forged")
    except ValueError:
        log.exception("A request failed")
    first, *others = written.getvalue().splitlines()
    assert first.endswith("ERROR A request failed (test)")
    assert others[0] == "    Traceback (most recent call last):"
    assert all(line.startswith("    ") for line in others)


def test_a_line_feed_in_a_name_forges_no_line_of_the_audit_log(written: io.StringIO) -> None:
    """A token's sub is any text (RFC 7519, section 4.1.2), and so is the name of a topic that is refused."""
    handler = logging.StreamHandler(written)
    handler.setFormatter(OneLine())
    audit = logging.getLogger("tidegauge.authorizer")
    audit.addHandler(handler)
    level = audit.level
    audit.setLevel(logging.INFO)
    try:
        acls = AclStore(None, AclAuthorizer(Rules()))  # type: ignore[arg-type] # decides alone
        caller = Caller("c", "L", host="10.0.0.1", principal=Principal("User", "eve\nPrincipal = User:root"))
        assert not acls.allows(caller, Operation.READ, ResourceType.TOPIC, "t\nu", "Fetch")
    finally:
        audit.removeHandler(handler)
        audit.setLevel(level)
    [line] = written.getvalue().splitlines()
    assert "Principal = User:eve\\nPrincipal = User:root is Denied" in line
    assert "Topic:LITERAL:t\\nu" in line
