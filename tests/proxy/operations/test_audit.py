"""The audit trail."""

import logging

import orjson
import pytest

from proxy.operations.audit import Audit, Write


def test_unauthenticated_writes_do_not_evict_those_of_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gantry.audit")
    now = 0.0
    audit = Audit(5, lambda: now)

    def write(at: float, caller: str, status: int) -> Write:
        return Write(at, caller, "192.0.2.7", "POST", "/v1/drain", "", None, status)

    audit.record(write(0.0, "operator", 200))
    for number in range(1_000):
        audit.record(write(1.0 + number / 1_000, "nobody", 401), unauthenticated=True)
    assert len(caplog.messages) == 11
    now = 60.0
    audit.record(write(60.0, "nobody", 401), unauthenticated=True)
    assert orjson.loads(caplog.messages[-1])["unlogged"] == 990
    newest = audit.newest()
    assert [entry.caller for entry in newest] == ["nobody"] * 5 + ["operator"]
    assert [entry.at for entry in newest] == sorted((entry.at for entry in newest), reverse=True)
