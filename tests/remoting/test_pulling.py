"""Tests of the fields of pulls that commit no offset."""

import pytest

from remoting.messages import PullSysFlag
from remoting.pulling import reading_fields


@pytest.mark.parametrize(
    ("wait_ms", "flags"), [(0, PullSysFlag.SUBSCRIPTION), (500, PullSysFlag.SUBSCRIPTION | PullSysFlag.SUSPEND)]
)
def test_only_a_pull_that_waits_is_suspended(wait_ms: int, flags: PullSysFlag) -> None:
    fields = reading_fields("g", 7, 1, wait_ms=wait_ms)
    assert fields["sysFlag"] == str(int(flags))
    assert fields["suspendTimeoutMillis"] == str(wait_ms)
