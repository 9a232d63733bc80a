"""All labs, in their order. Pure."""

from __future__ import annotations

import difflib

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.labs.checks import acknowledgement
from tidegauge_lab.labs.model import Lab, Topic

ORDERS = Topic("orders", ((1, 2, 0),))
"""One partition on three brokers. The controller, broker 0, is the last of its replicas, so the others die first."""
LONG_PATIENCE = {"replica.lag.time.max.ms": "600000"}
"""A follower that is held stays in the ISR."""

LABS: tuple[Lab, ...] = (
    Lab(
        1,
        "acks-all",
        acknowledgement.dead_follower,
        (ORDERS,),
        {**LONG_PATIENCE, "zookeeper.session.timeout.ms": "18000"},
    ),
    Lab(
        2,
        "min-insync-replicas",
        acknowledgement.too_few_in_sync,
        (Topic("orders", ((0, 1, 2),), {"min.insync.replicas": "2"}),),
        LONG_PATIENCE,
        brokers=4,
        controller=3,
    ),
    Lab(3, "high-watermark", acknowledgement.one_round_late, (ORDERS,), LONG_PATIENCE),
)


def lab_named(name: str) -> Lab:
    """Return a lab by its name or its number.

    Raises:
        TidegaugeError: INVALID_REQUEST, there is none; the sentence says which may be meant.
    """
    for lab in LABS:
        if name in {lab.name, str(lab.number)}:
            return lab
    near = difflib.get_close_matches(name, [lab.name for lab in LABS], n=1)
    hint = f"; did you mean {near[0]}?" if near else "; `tidegauge lab list` shows them"
    raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"there is no lab {name!r}{hint}")
