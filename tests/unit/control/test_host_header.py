"""Host headers (RFC 9110, section 7.2): a name that another DNS points here gets nothing, however it is written."""

from __future__ import annotations

import ipaddress
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge_lab.control.gate import host_of, refusal
from tidegauge_lab.watch.gate import refusal_of_reading

PORT = 19080
PIECES = st.sampled_from(
    ["[::1]", "[", "]", "::1", "127.0.0.1", "localhost", ".", ":", "80", "19080", "evil.example", "@", "/", "#", "\\",
     "%", "\t", " ", "\x00", "\r\n", "LOCALHOST", "0x7f.1", "[127.0.0.1]", "[fe80::1%25eth0]", "\u00e9", "\u017f"]
)  # fmt: skip
HOSTS = st.one_of(st.lists(PIECES, max_size=6).map("".join), st.text(max_size=30))


@pytest.mark.parametrize(
    "host",
    [
        "[::1].evil.example",
        "[::1]evil.example:80",
        "[127.0.0.1]",
        "[::1]:80:90",
        "localhost:80@evil.example",
        "[::1",
        "[]",
    ],
)
def test_what_follows_an_address_in_brackets_is_a_name_and_not_served(host: str):
    assert refusal({"host": host}, (), "")[0] == 403
    assert host_of(host) == ""


@settings(max_examples=examples(500))
@given(HOSTS)
@example("[::1].evil.example")
def test_the_control_server_serves_hosts_of_one_form_only(host: str):
    """Served is ``localhost`` or an IP address, alone or with a port; everything else is 403 and never an exception."""
    status, _ = refusal({"host": host}, (), "")
    plain = re.sub(r":[0-9]{0,5}\Z", "", host.strip(" \t"), flags=re.ASCII)
    if status == 0 and plain.lower() != "localhost":
        ipaddress.ip_address(plain[1:-1] if plain.startswith("[") else plain)


@settings(max_examples=examples(500))
@given(HOSTS)
@example("[::1].evil.example:19080")
def test_the_page_is_served_by_two_names_only(host: str):
    is_served = refusal_of_reading({"host": host}, PORT) == ""
    assert is_served == (host.lower() in {"127.0.0.1:19080", "localhost:19080"})
