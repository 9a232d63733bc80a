"""The control server's JSON: what it is does not depend on how much there is, and much leaves the loop to others."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tidegauge_lab.control.json_in_portions import ITEMS_PER_PORTION, rendered

LONG = 3 * ITEMS_PER_PORTION + 1
NAMES = [f"topic-{one}" for one in range(LONG)]


@pytest.mark.parametrize(
    "value",
    [
        {"topics": []},
        {"topics": NAMES, "lacks": ""},
        {"lacks": "ü", "groups": [{"id": one, "members": [1, None]} for one in NAMES], "more": {"x": tuple(NAMES)}},
        {name: {"lag": number} for number, name in enumerate(NAMES)},
        NAMES,
        {"a": {"b": dict.fromkeys(NAMES, 1.5)}, "c": True},
        None,
    ],
    ids=["short", "list", "objects", "object", "bare", "deep", "null"],
)
async def test_it_is_the_json_of_the_value(value: Any) -> None:
    found = await rendered(value)
    assert found == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@pytest.mark.parametrize(("count", "least"), [(ITEMS_PER_PORTION, 0), (LONG, 3)])
async def test_a_large_one_takes_several_turns(count: int, least: int) -> None:
    turns = 0
    task = asyncio.ensure_future(rendered({"topics": NAMES[:count]}))
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns - 1 == pytest.approx(least, abs=1)


async def test_a_number_that_json_has_not_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        await rendered({"x": float("nan")})
