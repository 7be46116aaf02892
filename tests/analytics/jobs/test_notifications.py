"""Webhook and e-mail of incidents: once when found, once when over, again after a failure."""

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from analytics.incidents.finding import Finding
from analytics.incidents.incident import Incident
from analytics.incidents.kinds import Kind
from analytics.jobs import notifications, streaming
from analytics.jobs.notifications import Channels, Mail, announce

_FINDING = Finding(Kind.SILENCE, 3600.0, 7200.0, {"topic": "shop%orders"}, 0, 9, 20.0, open=True)
OPEN = Incident(
    Kind.SILENCE, "critical", 3600.0, 7200.0, True, _FINDING.about, "Nothing was sent.", "Look.", 9, 1, (_FINDING,)
)
OVER = replace(OPEN, open=False, end=9000.0, start=3900.0)


class Hook:
    """A web server that records bodies, and answers with `status`."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.keys: list[str | None] = []
        self.status = 200
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                hook.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                hook.keys.append(self.headers["Idempotency-Key"])
                self.send_response(hook.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/"


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    monkeypatch.setattr(notifications, "post", partial(streaming.post, pauses=()))
    made = Hook()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_incident_is_announced_when_found_and_when_over(hook: Hook, tmp_path: Path) -> None:
    channels = Channels(hook.url, state=tmp_path / "state.json")
    assert announce([OPEN, replace(OPEN, about={"topic": "known"}, muted="known")], channels)
    assert announce([OPEN], channels)
    assert announce([OVER], channels)
    assert announce([OVER], channels)
    assert [[each["state"] for each in body["incidents"]] for body in hook.bodies] == [["open"], ["over"]]
    assert hook.bodies[0]["incidents"][0]["advice"] == "Look."
    assert len(set(hook.keys)) == 2


def test_what_the_webhook_did_not_take_is_sent_again(hook: Hook, tmp_path: Path) -> None:
    channels = Channels(hook.url, state=tmp_path / "state.json")
    hook.status = 400
    assert not announce([OPEN], channels)
    hook.status = 200
    assert announce([OPEN], channels)
    assert len(hook.bodies) >= 2
    (tmp_path / "state.json").write_text("[]")
    with pytest.raises(ValueError, match="is no state of announced incidents"):
        announce([OPEN], channels)


def _smtp(server: socket.socket, lines: list[str]) -> None:
    """Serve one mail."""
    connection, _ = server.accept()
    with connection, connection.makefile("rw", newline="\r\n") as stream:
        stream.write("220 test\n")
        stream.flush()
        inside = False
        for line in stream:
            lines.append(line.rstrip())
            if inside:
                if line.rstrip() != ".":
                    continue
                inside = False
                stream.write("250 taken\n")
            elif line.upper().startswith("DATA"):
                inside = True
                stream.write("354 go on\n")
            elif line.upper().startswith("QUIT"):
                stream.write("221 bye\n")
                stream.flush()
                return
            else:
                stream.write("250 test\n")
            stream.flush()


def test_mail_says_what_happened_and_what_to_do(tmp_path: Path) -> None:
    lines: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=_smtp, args=(server, lines), daemon=True)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert announce([OPEN], Channels(mail=Mail(address, "gantry@example.org", "ops@example.org")))
        thread.join(20)
    assert "Subject: Gantry: 1 incident, 1 going on" in lines
    assert "CRITICAL silence, since 1970-01-01 01:00 UTC, it goes on" in lines
    assert "What to do: Look." in lines
    # The port is closed now.
    assert not announce([OPEN], Channels(mail=Mail(address, "gantry@example.org", "ops@example.org")))


def test_another_incident_soon_after_one_is_announced(hook: Hook, tmp_path: Path) -> None:
    channels = Channels(hook.url, state=tmp_path / "state.json")
    second = replace(OPEN, start=10_000.0, end=10_800.0)
    over = replace(second, open=False, end=12_000.0)
    for now in ([OPEN], [OVER], [OVER, second], [OVER, second], [OVER, over], [OVER, over]):
        assert announce(now, channels)
    assert [[(each["state"], each["start"]) for each in body["incidents"]] for body in hook.bodies] == [
        [("open", "1970-01-01T01:00:00+00:00")],
        [("over", "1970-01-01T01:05:00+00:00")],
        [("open", "1970-01-01T02:46:40+00:00")],
        [("over", "1970-01-01T02:46:40+00:00")],
    ]


def test_an_incident_that_goes_on_after_it_seemed_over_is_announced_again(hook: Hook, tmp_path: Path) -> None:
    channels = Channels(hook.url, state=tmp_path / "state.json")
    for now in (OPEN, OVER, replace(OPEN, end=9600.0), replace(OPEN, end=9900.0)):
        assert announce([now], channels)
    assert [body["incidents"][0]["state"] for body in hook.bodies] == ["open", "over", "open"]


def test_an_incident_that_is_no_longer_found_is_withdrawn(hook: Hook, tmp_path: Path) -> None:
    channels = Channels(hook.url, state=tmp_path / "state.json")
    muted = replace(OPEN, muted="known")
    for now in ([OPEN], [muted], [OPEN], [], [], [replace(OPEN, end=9600.0)], [OVER], []):
        assert announce(now, channels)
    [found], [withdrawn], [later], [over] = (body["incidents"] for body in hook.bodies)
    assert [each["state"] for each in (found, withdrawn, later, over)] == ["open", "withdrawn", "open", "over"]
    assert {name: withdrawn[name] for name in ("kind", "about", "severity", "start", "happened")} == {
        name: found[name] for name in ("kind", "about", "severity", "start", "happened")
    }


def test_an_incident_of_another_kind_replaces_the_announced_one(hook: Hook, tmp_path: Path) -> None:
    channels = Channels(hook.url, state=tmp_path / "state.json")
    for now in ([OPEN], [replace(OPEN, kind=Kind.TRAFFIC_DROP)]):
        assert announce(now, channels)
    assert [(each["kind"], each["state"]) for each in hook.bodies[1]["incidents"]] == [
        ("traffic_drop", "open"),
        ("silence", "withdrawn"),
    ]
