"""Former names in Python work for one release and say what replaces them (switches/former.py)."""

from __future__ import annotations

import importlib

import pytest

import tidegauge_lab.switches as module
from tidegauge.errors import ErrorCode
from tidegauge.faults.actions import STEP_FETCH
from tidegauge.faults.table import INJECT_DISK, INJECT_ERROR, ISOLATE
from tidegauge.partition import TopicPartition
from tidegauge.v1 import lab_pb2
from tidegauge_lab.cli.fault_verbs import ChoiceType
from tidegauge_lab.scenario.steps import STEPS, arguments_of
from tidegauge_lab.scenario.yaml_reader import Scalar
from tidegauge_lab.switches import Plane, Step, Switches, Until


class Recording(Switches):
    """Keeps the faults that it is asked for."""

    def __init__(self) -> None:
        super().__init__({1: "127.0.0.1:1"})
        self.asked = []

    async def set_fault(self, broker, wanted):
        self.asked.append((broker, wanted))


@pytest.fixture
def switches():
    return Recording()


@pytest.mark.parametrize("name", ["NetworkEffect", "InjectedError", "DiskEffect"])
def test_a_former_name_is_imported_with_a_warning_that_names_its_replacement(name):
    with pytest.warns(DeprecationWarning, match=rf"tidegauge_lab.switches.{name} goes with .*: Switches\.") as caught:
        getattr(importlib.import_module("tidegauge_lab.switches"), name)
    assert caught[0].filename == __file__, "the warning names the line of the script"


def test_a_name_that_never_was_is_an_error_as_everywhere():
    with pytest.raises(AttributeError, match="has no attribute 'NetworkAffect'"):
        _ = module.NetworkAffect


async def test_a_former_network_effect_is_an_isolation_with_its_values(switches):
    with pytest.warns(DeprecationWarning, match="goes with the next release"):
        effects = [module.NetworkEffect(), module.NetworkEffect(5), module.NetworkEffect(0, 0.5, 7)]
    for effect in effects:
        await switches.isolate(1, Plane.BROKERS, "in", effect)
    await switches.isolate(1, [0, 2], delay_ms=5)
    values = [{}, {"delay_ms": 5}, {"drop": 0.5, "seed": 7}]
    expected = [(1, ISOLATE.wanted({"from": "brokers", "direction": "in", **one})) for one in values]
    assert switches.asked == [*expected, (1, ISOLATE.wanted({"from": [0, 2], "delay_ms": 5}))]


async def test_a_former_injected_error_is_a_declared_one_with_its_values(switches):
    with pytest.warns(DeprecationWarning, match="goes with the next release"):
        injected = module.InjectedError("Produce", ErrorCode.NOT_CONTROLLER, skip=2, times=0, after_effect=True)
    await switches.inject_error(1, injected)
    await switches.inject_error(1, "Fetch", grpc_status="UNAVAILABLE")
    values = {"rpc": "Produce", "error": "NOT_CONTROLLER", "nth": 3, "times": 0, "after_effect": True}
    assert switches.asked == [
        (1, INJECT_ERROR.wanted(values)),
        (1, INJECT_ERROR.wanted({"rpc": "Fetch", "grpc_status": "UNAVAILABLE"})),
    ]


async def test_a_former_disk_effect_is_a_disk_fault_with_its_values(switches):
    with pytest.warns(DeprecationWarning, match="goes with the next release"):
        effect = module.DiskEffect(errno_name="EIO", operation="sync", path_contains="t-0", skip=1, times=2)
    with pytest.warns(DeprecationWarning, match=r"Switches\.set_disk goes") as caught:
        await switches.set_disk(1, effect)
    assert caught[0].filename.endswith("former.py") is False
    values = {"errno": "EIO", "operation": "sync", "path": "t-0", "nth": 2, "times": 2}
    assert switches.asked == [(1, INJECT_DISK.wanted(values))]


def test_the_former_word_for_a_whole_round_is_read_for_one_release(capsys):
    assert Until.ANSWER is Until.RESPONSE
    with pytest.warns(DeprecationWarning, match="`answer` of until goes with the next release"):
        assert Until("answer") is Until.RESPONSE
    with pytest.raises(ValueError, match="'tomorrow' is not a valid Until"):
        Until("tomorrow")
    assert STEP_FETCH.wanted(1, {"partition": "t-0", "until": "answer"})["until"] == "response"
    step = arguments_of(STEPS["step_fetch"])["until"].read(Scalar(7, "answer", "answer"))
    assert step == "response"
    assert "line 7: 'answer' goes with the next release: write 'response'" in capsys.readouterr().err
    option = ChoiceType(STEP_FETCH.parameter("until"))
    assert option.convert("answer", None, None) == "response"
    assert "'answer' goes with the next release: write 'response'" in capsys.readouterr().err


def test_the_former_name_of_a_withheld_response_warns():
    step = Step(TopicPartition("t", 0), 1, ErrorCode.NONE, "", 0, True, "", (), lab_pb2.StepFetchResponse())
    with pytest.warns(DeprecationWarning, match="it is response_withheld now"):
        assert step.answer_kept_back is True
