"""The vocabulary of scenario files: all steps by their verbs.

Rules:
- A step is a mapping with one verb, and beside it ``note`` if it needs a word. The verb's arguments are a mapping; a
  verb with a ``main`` argument takes that one alone too: ``kill: 1`` is ``kill: {brokers: 1}``.
- ``partition`` may be left out everywhere: it is the first partition of the first topic.
- Names come from the command line and from Kafka.

``docs/scenarios.md`` has the table of these steps, made by ``tools/generate-faults.py``.
"""

from __future__ import annotations

from tidegauge_lab.scenario.broker_steps import BROKER_STEPS
from tidegauge_lab.scenario.fault_steps import FAULT_STEPS
from tidegauge_lab.scenario.group_steps import GROUP_STEPS
from tidegauge_lab.scenario.quorum_steps import QUORUM_STEPS
from tidegauge_lab.scenario.share_steps import SHARE_STEPS
from tidegauge_lab.scenario.state_steps import STATE_STEPS
from tidegauge_lab.scenario.step_base import Step
from tidegauge_lab.scenario.transaction_steps import TRANSACTION_STEPS
from tidegauge_lab.scenario.wait_steps import WAIT_STEPS

STEPS: dict[str, type[Step]] = {
    step.verb: step
    for step in (
        *BROKER_STEPS,
        *FAULT_STEPS,
        *WAIT_STEPS,
        *QUORUM_STEPS,
        *STATE_STEPS,
        *GROUP_STEPS,
        *SHARE_STEPS,
        *TRANSACTION_STEPS,
    )
}
"""By verb."""
