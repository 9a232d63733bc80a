"""Where a scenario plays: ports that no other run has, and a take-down that a second Ctrl-C does not stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegauge_lab.scenario import stage


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(stage, "shared_directory", lambda: tmp_path)  # not the one where real runs meet
    monkeypatch.setattr(stage.ports, "is_free", lambda _: True)
    return tmp_path


def test_runs_at_one_time_have_blocks_of_their_own(locks: Path) -> None:
    with stage._ports() as one, stage._ports() as other, stage._ports() as third:
        assert len({one, other, third}) == 3
        assert all(base % 16 == 13_008 % 16 and 13_008 <= base < 19_092 - 16 for base in (one, other, third))
    with stage._ports() as again:
        assert again == one, "what was let go can be had"
    assert list(locks.iterdir()) == []


def test_a_block_with_a_busy_port_is_left_out(locks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stage._ports() as first:
        pass
    monkeypatch.setattr(stage.ports, "is_free", lambda port: port != first + 5)
    with stage._ports() as second:
        assert second != first
    assert list(locks.iterdir()) == []


def test_a_lock_file_that_was_removed_meanwhile_is_no_lock(locks: Path) -> None:
    path = locks / "a.lock"
    with path.open("w") as stale:
        path.unlink()
        path.touch()
        assert not stage._locked(path, stale)
    with path.open("w") as fresh:
        assert stage._locked(path, fresh)


def test_a_second_ctrl_c_does_not_stop_the_take_down() -> None:
    tries = []

    def take_down() -> None:
        tries.append(len(tries))
        if len(tries) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stage._surely(take_down)
    assert tries == [0, 1]
