"""The page `play` as files: what it is made of, what its server gives out, what it refuses; without a browser."""

from __future__ import annotations

import http.client
import io
import json
import re
import threading
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.hand.test_stories import PLAYED

from tidegauge.errors import TidegaugeError
from tidegauge_lab.labs.catalogue import LABS
from tidegauge_lab.play import runtime
from tidegauge_lab.play.code_archive import ENTRY, archive, modules_needed, roots
from tidegauge_lab.play.runtime import FILES, missing, unpack
from tidegauge_lab.play.server import PlayServer
from tidegauge_lab.play.site import OWN_SCRIPTS, document, own_file, site_files, write_site
from tidegauge_lab.play.stories import labs_elsewhere, played, stories
from tidegauge_lab.watch.page_files import SCRIPTS, page_file
from tidegauge_proof.hand.desk import Desk

MOST_BYTES_OVER_THE_WIRE = 8_000_000


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """A directory with files of the runtime's names."""
    for name in FILES:
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def of_watch(name: str) -> str:
    return page_file(name) if name != "source.js" else own_file(name)


def test_no_two_scripts_declare_the_same_name() -> None:
    """Scripts of one page share one scope: a second `const` of a name stops the page."""
    declared = re.compile(r"^(?:async )?(?:function|const|let|class) (\w+)", re.MULTILINE)
    texts = [*map(of_watch, SCRIPTS), *map(own_file, OWN_SCRIPTS)]
    assert [
        name for name, count in Counter(one for text in texts for one in declared.findall(text)).items() if count > 1
    ] == []


def test_no_two_elements_have_the_same_id() -> None:
    ids = Counter(re.findall(r'\bid="([^"]+)"', document()))
    assert [name for name, count in ids.items() if count > 1] == []


def test_both_sources_offer_what_the_views_ask_of_them() -> None:
    """One interface, two sources: whatever the views of `tidegauge watch` call is in both files."""
    called = {
        name
        for script in SCRIPTS
        if script != "source.js"
        for name in re.findall(r"\bsource\.(\w+)", page_file(script))
    }
    offered = re.compile(r"^    (?:async )?(\w+)(?:\(|:|,)", re.MULTILINE)
    assert called == {"vocabulary", "lessons", "lab", "send", "open", "now", "precise", "silent"}
    for text in (page_file("source.js"), own_file("source.js")):
        assert called <= set(offered.findall(text))


def test_every_word_is_there_in_both_languages() -> None:
    text = own_file("texts.js")
    english, chinese = text.split("\n  zh: {")
    keys = re.compile(r'(?:^|, |\{ ?)\s*"?([\w-]+)"?: "', re.MULTILINE)
    assert set(keys.findall(english)) == set(keys.findall(chinese))
    used = {name for script in OWN_SCRIPTS for name in re.findall(r'\bword\("([\w-]+)"\)', own_file(script))}
    used |= set(re.findall(r'data-text="([\w-]+)"', own_file("play.html")))
    assert used <= set(keys.findall(english))


def test_nothing_of_another_origin_is_named(stand_in: Path) -> None:
    """No address but XML's and SVG's names; the policy would refuse it."""
    for name, content in site_files(stand_in).items():
        if not name.startswith("runtime/") and name.endswith((".js", ".html", ".css")):
            found = set(re.findall(r"https?://[^\s\"'`<)]+", content.decode()))
            assert found <= {"http://www.w3.org/2000/svg"}, name


def test_the_policy_stands_in_the_document() -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', document())
    assert policy is not None
    assert policy[1].startswith("default-src 'none'")
    assert "unsafe-inline" not in policy[1]
    assert "'unsafe-eval'" not in policy[1]
    assert "<script>" not in document()
    assert re.findall(r"\son\w+=", document()) == []


def test_the_archive_holds_the_brokers_code_and_no_wire() -> None:
    needed = set(modules_needed((ENTRY,), roots()))
    assert {"tidegauge_broker.replica.leader", "tidegauge_broker.replica.effect_executor"} <= needed
    assert "tidegauge_controller.zookeeper.decisions.partition_machine" in needed
    assert {one for one in needed if "_pb2" in one or ".server" in one or ".cli." in one or "kazoo" in one} == set()
    with zipfile.ZipFile(io.BytesIO(archive())) as content:
        assert content.testzip() is None
        assert "tidegauge_proof/hand/desk.py" in content.namelist()


def test_the_service_workers_version_follows_the_files(stand_in: Path) -> None:
    def version() -> str:
        found = re.search(r'VERSION = "(\w+)"', site_files(stand_in)["service-worker.js"].decode())
        assert found is not None
        return found[1]

    before = version()
    assert before == version()
    (stand_in / FILES[0]).write_bytes(b"another")
    assert before != version()


def test_the_service_worker_keeps_every_file(stand_in: Path) -> None:
    files = site_files(stand_in)
    listed = json.loads(re.search(r"FILES = (\[.*?\]);", files["service-worker.js"].decode())[1])
    assert {one.removeprefix("./") or "index.html" for one in listed} == set(files) - {"service-worker.js"}


def test_the_site_is_written_as_it_is_served(stand_in: Path, tmp_path: Path) -> None:
    size = write_site(tmp_path / "site", stand_in)
    written = {
        one.relative_to(tmp_path / "site").as_posix(): one.read_bytes()
        for one in (tmp_path / "site").rglob("*")
        if one.is_file()
    }
    assert written == site_files(stand_in)
    assert size == sum(map(len, written.values()))


# Stories


def test_the_stories_are_the_scenarios_that_play() -> None:
    assert played() == PLAYED


@pytest.mark.parametrize("story", stories(), ids=lambda one: one["name"])
def test_every_story_plays_to_its_end_as_expected(story: dict) -> None:
    desk = Desk()
    begun = json.loads(desk.request(json.dumps({"op": "story", "scenario": story["scenario"]})))
    assert "error" not in begun
    found = json.loads(desk.request(json.dumps({"op": "story_to", "place": len(story["scenario"]["steps"])})))
    assert (found["story"]["failed"], found["story"]["over"]) == (0, True)
    if story["name"] == "tour":
        assert found["verdict"]["lost"] == ["LOST: m2 was acknowledged (acks=all) at offset 1, and no replica has it"]
    if story["name"].endswith("-cured") and story["name"] not in PLAYED:
        assert found["verdict"]["lost"] == []


def test_every_lab_plays_or_the_reason_stands_in_the_documentation() -> None:
    plays = {one["name"].removeprefix("lab-") for one in stories() if one["theme"] == "labs"}
    elsewhere = labs_elsewhere()
    assert plays | set(elsewhere) == {lab.name for lab in LABS}
    assert not plays & set(elsewhere)
    rows = []
    for lab in LABS:
        where = elsewhere.get(lab.name, {})
        assert where.get("story", "tour") in {one["name"] for one in stories()}
        plays_as = f"`{where['story']}`" if "story" in where else f"`lab-{lab.name}`" if lab.name in plays else "no"
        rows.append(f"| {lab.number} | `{lab.name}` | {plays_as} | {where.get('why', '')} |")
    page = (Path(__file__).parents[3] / "docs" / "play.md").read_text()
    assert page.partition("<!-- labs -->\n")[2].partition("\n<!-- end of labs -->")[0].splitlines()[2:] == rows


def test_every_story_of_a_group_of_kafka_4_stands_in_the_documentation() -> None:
    rows = [f"| `{one['name']}` | {one['title']['en']} |" for one in stories() if one["theme"] == "groups-of-kafka-4"]
    page = (Path(__file__).parents[3] / "docs" / "play.md").read_text()
    assert page.partition("<!-- groups -->\n")[2].partition("\n<!-- end of groups -->")[0].splitlines()[2:] == rows


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("group-gives-up-first", "UNKNOWN_MEMBER_ID"),
        ("share-group", "ShareAcknowledge response(INVALID_RECORD_STATE)"),
        ("share-leader-dies", "ReadShareGroupState response(start offset 1, 2 acknowledged)"),
    ],
)
def test_a_story_of_a_group_of_kafka_4_has_the_message_that_its_text_is_about(name: str, wanted: str) -> None:
    desk = Desk()
    story = next(one for one in stories() if one["name"] == name)
    desk.request(json.dumps({"op": "story", "scenario": story["scenario"]}))
    desk.request(json.dumps({"op": "story_to", "place": 99}))
    assert [one.text for one in desk.cluster.post.kept if wanted in one.text]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("lab-acks-all", {"isr": [1, 0]}),
        ("lab-slow-follower", {"isr": [1, 0, 2]}),
        ("lab-preferred-leader", {"leader": 1, "leaderEpoch": 2}),
        ("lab-controller", {"leader": 0, "isr": [0, 1, 2]}),
    ],
)
def test_a_lab_ends_as_its_text_says(name: str, shown: dict) -> None:
    desk = Desk()
    story = next(one for one in stories() if one["name"] == name)
    desk.request(json.dumps({"op": "story", "scenario": story["scenario"]}))
    found = json.loads(desk.request(json.dumps({"op": "story_to", "place": 99})))["view"]["partitions"]["orders-0"]
    assert {key: found[key] for key in shown} == shown


def test_every_cure_is_a_story_with_text_in_both_languages() -> None:
    found = {one["name"]: one for one in stories()}
    for one in found.values():
        assert one["cure"] is None or one["cure"] in found
        assert one["title"]["en"]
        assert re.search(r"[\u4e00-\u9fff]", one["title"]["zh"])
        assert one["intro"]["en"]
        assert one["intro"]["zh"]


CHINESE = re.compile(r"[\u4e00-\u9fff]")


@pytest.mark.parametrize("story", stories(), ids=lambda one: one["name"])
def test_no_sentence_of_a_story_is_english_in_chinese(story: dict) -> None:
    texts = [story["title"]["zh"], story["intro"]["zh"]]
    texts += [step["note"]["zh"] for step in story["scenario"]["steps"] if step.get("note")]
    assert [one for one in texts if not CHINESE.search(one)] == []


# The runtime


def test_what_is_missing_is_said_with_the_way_to_bring_it(tmp_path: Path, stand_in: Path) -> None:
    assert missing(stand_in) == ""
    assert "make play-runtime" in missing(tmp_path / "nowhere")


def test_a_package_that_is_not_the_pinned_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TidegaugeError, match="not the pinned one"):
        unpack(b"another package", tmp_path / "into")
    assert not (tmp_path / "into").exists()


@pytest.mark.skipif(bool(missing()), reason=missing() or "it is here")
def test_a_first_visit_loads_less_than_8_mb() -> None:
    with PlayServer(0, site_files()) as server:
        assert server.files.wire_bytes() < MOST_BYTES_OVER_THE_WIRE


# The server


@pytest.fixture
def server(stand_in: Path) -> Iterator[PlayServer]:
    with PlayServer(0, site_files(stand_in)) as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def ask(server: PlayServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()


def test_every_file_has_its_type_and_the_headers_that_keep_other_sites_out(server: PlayServer, stand_in: Path) -> None:
    for name, content in site_files(stand_in).items():
        status, headers, body = ask(server, f"/{name}")
        assert (status, body) == (200, content)
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    assert ask(server, "/runtime/pyodide.asm.wasm")[1]["content-type"] == "application/wasm"
    assert ask(server, "/worker.js")[1]["content-type"].startswith("text/javascript")


def test_the_document_is_at_the_root_whatever_follows_a_question_mark(server: PlayServer) -> None:
    assert ask(server, "/?story=tour&lang=zh")[2] == document().encode()


def test_files_are_compressed_for_whoever_takes_that(server: PlayServer) -> None:
    assert ask(server, "/watch.css", accept_encoding="gzip")[1]["content-encoding"] == "gzip"
    assert "content-encoding" not in ask(server, "/code.zip", accept_encoding="gzip")[1]


@pytest.mark.parametrize(
    "path", ["/nothing", "/../pyproject.toml", "/%2e%2e/pyproject.toml", "//etc/passwd", "/runtime/"]
)
def test_what_is_no_file_of_the_page_is_not_found(server: PlayServer, path: str) -> None:
    assert ask(server, path)[0] == 404


def test_another_name_for_this_host_gets_nothing(server: PlayServer) -> None:
    """DNS rebinding: the page of another site must not read ours by a name that it points here."""
    status, _, body = ask(server, "/", host="evil.example:80")
    assert status == 403
    assert b"<html" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_there_is_nothing_to_change(server: PlayServer, method: str) -> None:
    assert ask(server, "/", method)[0] == 501


def test_a_port_that_is_taken_is_refused_by_a_sentence(server: PlayServer) -> None:
    with pytest.raises(TidegaugeError, match="give another with --port"):
        PlayServer(server.port, {})


def test_the_pinned_version_is_one_place() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", runtime.VERSION)
