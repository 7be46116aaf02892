"""A few rounds of kill -9; `kill.py` does more."""

from pathlib import Path

from tests.proxy.embedded.store import kill


def test_durable_writes_survive_kill_9(tmp_path: Path) -> None:
    assert kill.run(5, tmp_path, seed=5) > kill.LEAST
