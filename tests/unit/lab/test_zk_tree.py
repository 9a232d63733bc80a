"""`zk-tree`: what it makes of znodes, as text, as JSON, and from one look to the next."""

from __future__ import annotations

import pytest

from tidegauge_lab.cli.zk_tree import Znode, changes, json_of, line_of, owners_of

BROKER = Znode(b'{"version":5}', 1, 20, 0xABC)
CONTROLLER = Znode(b'{"version":2}', 0, 21, 0xABC)
NULL = Znode(None, 0, 3, 0)
STATE = Znode(b'{"leader":1}', 4, 30, 0)


def test_an_ephemeral_znode_names_the_broker_whose_session_owns_it():
    owners = owners_of({"/brokers/ids": NULL, "/brokers/ids/7": BROKER, "/controller": CONTROLLER})
    assert owners == {0xABC: "broker 7"}
    assert line_of("/controller", CONTROLLER, owners) == (
        'controller  {"version":2}  # version 0, ephemeral, owner broker 7 (session 0xabc)'
    )
    assert json_of("/controller", CONTROLLER, owners)["owner"] == {"session": "0xabc", "process": "broker 7"}
    assert line_of("/controller", CONTROLLER, {}).endswith("owner unknown (session 0xabc)")


def test_depth_is_indentation_and_null_is_nothing():
    assert line_of("/admin/delete_topics", NULL, {}) == "  delete_topics  # version 0"
    path = "/brokers/topics/t/partitions/0/state"
    assert line_of(path, STATE, {}) == '          state  {"leader":1}  # version 4'
    assert line_of(path, STATE, {}, whole_path=True) == f'{path}  {{"leader":1}}  # version 4'


@pytest.mark.parametrize(("data", "shown"), [(None, None), (b"5", "5"), (b"\xff", {"base64": "/w=="})])
def test_data_in_json(data: bytes | None, shown: object):
    entry = json_of("/x", Znode(data, 2, 9, 0), {})
    assert entry == {"path": "/x", "data": shown, "version": 2, "czxid": 9, "owner": None}


def test_what_happened_between_two_looks():
    old = {"/a": NULL, "/b": NULL, "/c": NULL}
    new = {"/a": NULL, "/b": NULL._replace(version=1), "/d": STATE, "/c": NULL._replace(czxid=40)}
    assert [(sign, path) for sign, path, _ in changes(old, new)] == [("~", "/b"), ("+", "/d"), ("~", "/c")]
    assert [(sign, path) for sign, path, _ in changes(new, {"/a": NULL})] == [("-", "/b"), ("-", "/d"), ("-", "/c")]
