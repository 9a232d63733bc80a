"""Outside suites: how their reports are read, which tests are repeated, and the page docs/compatibility.md."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[3] / "bench"


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("outside.results")


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("outside.page")


def test_a_report_of_pytest_has_one_result_for_each_test(results: Any) -> None:
    """A test that passes and fails in its teardown is there twice, and has failed; a reason is one line."""
    report = """<testsuites><testsuite>
    <testcase classname="tests.test_a.TestA" name="test_good" time="1.5"/>
    <testcase classname="tests.test_a" name="test_bad"><failure message="assert 1 == 2&#10;more"/></testcase>
    <testcase classname="tests.test_a" name="test_end"/>
    <testcase classname="tests.test_a" name="test_end"><error message="left open"/></testcase>
    <testcase classname="tests.test_a" name="test_left"><skipped message="no TLS"/></testcase>
    </testsuite></testsuites>"""
    assert [(one.test, one.outcome.value, one.text) for one in results.from_junit(report)] == [
        ("tests.test_a.TestA::test_good", "passed", ""),
        ("tests.test_a::test_bad", "failed", "assert 1 == 2"),
        ("tests.test_a::test_end", "failed", "left open"),
        ("tests.test_a::test_left", "skipped", "no TLS"),
    ]
    with pytest.raises(ValueError, match="can't be read"):
        results.from_junit("<testsuites>")


def test_a_go_test_that_has_no_end_has_failed(results: Any) -> None:
    """``go tool test2json`` reports the end of a test; a run that was killed leaves tests without one. Parts of a test
    are not counted, and lines of the client's own log are no reason."""
    events = [
        {"Action": "run", "Test": "TestGood"},
        {"Action": "pass", "Test": "TestGood/part", "Elapsed": 1},
        {"Action": "pass", "Test": "TestGood", "Elapsed": 2.5},
        {"Action": "run", "Test": "TestBad"},
        {"Action": "output", "Test": "TestBad", "Output": "=== RUN   TestBad\n"},
        {"Action": "output", "Test": "TestBad", "Output": "    a_test.go:7: saw 1 != exp 2\n"},
        {"Action": "fail", "Test": "TestBad", "Elapsed": 1},
        {"Action": "run", "Test": "TestStuck"},
        {"Action": "fail"},
    ]
    output = "no event\n" + "\n".join(map(json.dumps, events)) + '\n{"Action": "ou'
    assert [(one.test, one.outcome.value, one.text, one.seconds) for one in results.from_go(output)] == [
        ("TestGood", "passed", "", 2.5),
        ("TestBad", "failed", "a_test.go:7: saw 1 != exp 2", 1.0),
        ("TestStuck", "failed", "it did not end in time", 0.0),
    ]


def test_librdkafka_s_runner_is_read_line_by_line(results: Any) -> None:
    """A failure ends it with an assertion, before its table of results; colours and other lines come in between."""
    output = """\x1b[0m\x1b[33m[0086_purge_local / 0.000s] WARN: SKIPPING TEST: Filtered due to negative test flags
\x1b[0m\x1b[36m[0122_buffer / 0.000s] \x1b[32m====== Test 0122_buffer PASSED ======\x1b[0m
\x1b[0m\x1b[31m### Test "0081_admin (do_test_CreateAcls:1115)" failed at 0081-admin.c:1198 at Mon 2026: ###
Test assertion failed: "!error": Expected RD_KAFKA_RESP_ERR_NO_ERROR, not No Authorizer is configured.
### Test "<MAIN>" failed at test.c:1596:test_wait_exit() at Mon Nov 23 15:48:10 2026: ###
16 thread(s) still active in librdkafka
"""
    assert [(one.test, one.outcome.value, one.text) for one in results.from_librdkafka(output)] == [
        ("0086_purge_local", "skipped", "Filtered due to negative test flags"),
        ("0122_buffer", "passed", ""),
        (
            "0081_admin",
            "failed",
            'Test assertion failed: "!error": Expected RD_KAFKA_RESP_ERR_NO_ERROR, not No Authorizer is configured.',
        ),
    ]


def test_the_try_that_passed_counts(results: Any, tmp_path: Path) -> None:
    """A test that failed under load and passes when it is repeated has passed, and the record keeps both; a line that a
    killed run has not ended is left out."""
    record = results.Record(tmp_path / "suite-kafka.jsonl")
    failed, passed = (results.Result("a", results.Outcome(outcome)) for outcome in ("failed", "passed"))
    record.add([failed, results.Result("b", results.Outcome.FAILED, "first")], 30.04)
    record.add([passed, results.Result("b", results.Outcome.FAILED, "second")], 2.0)
    with (tmp_path / "suite-kafka.jsonl").open("a") as file:
        file.write('{"test": "c", "out')
    tries = record.tries()
    assert [(one.outcome.value, one.load) for one in tries["a"]] == [("failed", 30.0), ("passed", 2.0)]
    assert results.verdict(tries["a"]).outcome is results.Outcome.PASSED
    assert results.verdict(tries["b"]).text == "second"
    assert tries.keys() == {"a", "b"}


def test_the_page_names_each_test_that_passes_on_kafka_alone_with_its_reason(page: Any, results: Any) -> None:
    """docs/compatibility.md: a skip here of what passes there counts too, and a test that was not reported at all."""
    made = results.Result
    passed, failed, skipped = results.Outcome.PASSED, results.Outcome.FAILED, results.Outcome.SKIPPED
    kafka = {name: made(name, passed) for name in ("m::a", "m::b", "m::c", "m::d")} | {
        "m::e": made("m::e", failed, "x|y")
    }
    here = {"m::a": made("m::a", passed), "m::b": made("m::b", failed, "b broke"), "m::c": made("m::c", skipped)}
    suite = page.SUITES["aiokafka"]
    found = page.Compared(suite, kafka, here | {"m::e": made("m::e", failed)}, repeated={"kafka": 0, "tidegauge": 1})
    text = page.rendered("", [found], {"aiokafka": {"c": "c is not for us"}})
    row = next(line for line in text.splitlines() if line.startswith("| [aiokafka's tests]"))
    assert row == "| [aiokafka's tests](#aiokafka) | 0.14.0 | 4, 1, 0 | 1, 2, 1 | 3 |"
    for line in (
        "| `m::b` | `b broke` |",
        "| `m::c` | c is not for us |",
        "| `m::d` | `not reported` |",
        "| `m::e` | `x/y` |",
    ):
        assert line in text.splitlines()


def test_a_reason_may_be_that_of_a_whole_class(page: Any, results: Any) -> None:
    """JUnit's classes; a test that was aborted says why without the exception's name."""
    made, passed, skipped = results.Result, results.Outcome.PASSED, results.Outcome.SKIPPED
    names = ("org.a.BTest::one()[1]", "org.a.BTest::two()", "org.a.CTest::one()[1]")
    here = {name: made(name, skipped, "org.opentest4j.TestAbortedException: not here") for name in names}
    kafka = {name: made(name, passed) for name in names}
    suite = page.SUITES["kafka-streams"]
    reasons = {"kafka-streams": {"BTest": "B is not for us", "two()": "nor is two"}}
    text = page.rendered("", [page.Compared(suite, kafka, here, repeated={"kafka": 0, "tidegauge": 0})], reasons)
    rows = [line for line in text.splitlines() if line.startswith("| `org.a.")]
    assert rows == [
        "| `org.a.BTest::one()[1]` | B is not for us |",
        "| `org.a.BTest::two()` | nor is two |",
        "| `org.a.CTest::one()[1]` | `not here` |",
    ]


def test_of_a_suite_only_classes_count_that_both_sides_have_run(page: Any, results: Any, tmp_path: Path) -> None:
    """The section says which; a suite that was interrupted has no failures by that."""
    suite = page.SUITES["kafka-clients"]
    first, second, third = suite.classes[:3]
    for side, classes in (("kafka", (first, second)), ("tidegauge", (second, third))):
        made = [results.Result(f"{name}::test()[1]", results.Outcome.PASSED) for name in classes]
        page.record_of(tmp_path, suite.name, side).add(made, 1.0)
    text = page.rendered("", [page.compared(tmp_path, suite)], {})
    assert "| 4.3.1 | 1, 0, 0 | 1, 0, 0 | 0 |" in text
    of_all = f"Counted are 1 of its {len(suite.classes)} classes: {second.rpartition('.')[2]}."
    assert of_all in text
    assert "Tidegauge alone" not in text


def test_what_is_left_of_a_suite_is_run_class_by_class(
    monkeypatch: pytest.MonkeyPatch, page: Any, results: Any, tmp_path: Path
) -> None:
    """A class within another belongs to it; a suite without classes is run in one piece."""
    monkeypatch.setattr("sys.argv", ["outside"])
    main = importlib.import_module("outside.__main__")
    suite = page.SUITES["kafka-clients"]
    record = page.record_of(tmp_path, suite.name, "kafka")
    record.add([results.Result(f"{suite.classes[0]}$Inner::test()[1]", results.Outcome.FAILED)], 1.0)
    assert main._not_recorded(suite, record, ()) == [[name] for name in suite.classes[1:]]
    last = suite.classes[-1]
    assert main._not_recorded(suite, record, [last.rpartition(".")[2]]) == [[last]]
    assert main._not_recorded(page.SUITES["aiokafka"], page.record_of(tmp_path, "aiokafka", "kafka"), ()) == [[]]
    assert main._not_recorded(page.SUITES["aiokafka"], record, ()) == []


def test_a_suite_without_results_keeps_its_row_and_section(page: Any, results: Any) -> None:
    """A machine without Go, or a run of one suite, takes nothing from the page."""
    one = {"m::a": results.Result("m::a", results.Outcome.PASSED)}
    other = {"m::a": results.Result("m::a", results.Outcome.FAILED, "why")}
    both = [page.Compared(page.SUITES[name], one, other, repeated={}) for name in ("aiokafka", "franz-go")]
    former = page.rendered("", both, {})
    assert page.rendered(former, [None] * len(page.SUITES), {}) == former
    assert page.rendered(former, [page.Compared(page.SUITES["aiokafka"], one, other, repeated={})], {}) == former


def test_the_published_page_is_of_this_form(page: Any) -> None:
    """Its words, its rows and its list of left-out tests match the program that writes it."""
    published = page.PAGE.read_text(encoding="utf-8")
    assert page.rendered(published, [None] * len(page.SUITES), {}) == published
