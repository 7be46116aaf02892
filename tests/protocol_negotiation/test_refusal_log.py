import logging

import pytest

from protocol_negotiation.negotiation import Outcome
from protocol_negotiation.peer import HostPort, Peer
from protocol_negotiation.refusal_log import MAX_LINES_PER_SECOND, RefusalLog

PEER = Peer(HostPort("192.0.2.7", 5), HostPort("198.51.100.9", 80), via=HostPort("10.0.0.1", 6))


def test_a_refusal_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    RefusalLog("main", lambda: 0.0, lambda: None).refused(Outcome.UNKNOWN, PEER, b"SSH-", "no known protocol")
    assert caplog.messages == [
        "listener main: unknown from 192.0.2.7:5 via 10.0.0.1:6: no known protocol; first bytes: 53 53 48 2d"
    ]
    assert caplog.records[0].name == "gantry.negotiation"
    assert caplog.records[0].levelno == logging.WARNING


def test_refusals_over_the_rate_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    now, flushes = [7.0], []
    log = RefusalLog("main", lambda: now[0], lambda: flushes.append(now[0]))
    for _ in range(MAX_LINES_PER_SECOND + 90):
        log.refused(Outcome.UNKNOWN, PEER, b"", "")
    assert len(caplog.messages) == MAX_LINES_PER_SECOND
    assert flushes == [7.0]
    now[0] = 8.0
    log.refused(Outcome.UNKNOWN, PEER, b"", "")
    log.flush()
    log.flush()
    assert caplog.messages[MAX_LINES_PER_SECOND + 1 :] == ["listener main: 90 more connections refused"]


def test_port_checks_are_logged_below_warning(caplog: pytest.LogCaptureFixture) -> None:
    log = RefusalLog("main", lambda: 0.0, lambda: None)
    log.refused(Outcome.CLOSED, PEER, b"", "")
    log.refused(Outcome.SILENT, PEER, b"", "")
    assert caplog.messages == []
    with caplog.at_level(logging.DEBUG, "gantry.negotiation"):
        log.refused(Outcome.CLOSED, PEER, b"", "")
    assert caplog.records[0].levelno == logging.DEBUG
