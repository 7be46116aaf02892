"""The audit log as messages of a topic, on an embedded broker."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from pydantic import ValidationError

from proxy.app import App
from proxy.auth import audit_topic
from proxy.auth.audit_topic import AuditTopic
from proxy.observability.metrics.family import Labels
from proxy.settings.auth import AuthSettings
from remoting import messages
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import ServiceUnavailable
from tests.cluster.client import pull_fields
from tests.proxy.auth.replica import CREATE, replica
from tests.proxy.auth.requests import command
from tests.proxy.auth.users import BOB, IMPOSTOR, ROOT, signed
from tests.proxy.messages import request
from tests.proxy.observability.metrics.samples import samples_of
from tests.proxy.replica import Client

pytestmark = pytest.mark.anyio

_AUDIT = logging.getLogger("gantry.audit")


@pytest.fixture(autouse=True)
def _short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_topic, "_INTERVAL", 0.02)


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == _AUDIT.name]


async def _stored(client: Client) -> list[str]:
    pull = request(RequestCode.PULL_MESSAGE, **pull_fields("audit", "auditors"))
    reply = await client.ask(signed(pull, ROOT))
    if reply.code != ResponseCode.SUCCESS:
        return []
    return [messages.body(message).decode() for message in messages.decode_messages(reply.body)]


def _outcomes(app: App) -> dict[Labels, object]:
    samples = next(found for family, found in app.metrics.snapshot() if family.name == "gantry_audit_topic_lines")
    return {**samples}


async def test_lines_reach_the_topic_once_it_exists_and_cause_no_further_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with replica(tmp_path, auth={"audit_topic": "audit"}) as app:
        client = await Client.connect(app)
        await client.ask(signed(command(RequestCode.GET_ROUTEINFO_BY_TOPIC), BOB))
        await client.ask(signed(command(RequestCode.GET_ROUTEINFO_BY_TOPIC), IMPOSTOR))
        # Several attempts without the topic.
        await anyio.sleep(0.2)
        assert _outcomes(app) == {}
        created = await client.ask(
            signed(request(RequestCode.UPDATE_AND_CREATE_TOPIC, **CREATE | {"topic": "audit"}), ROOT)
        )
        assert created.code == ResponseCode.SUCCESS
        # Pulls as ROOT are neither denied nor changes.
        with anyio.fail_after(10):
            while len(stored := await _stored(client)) < 4:
                await anyio.sleep(0.02)
        # Time for lines about the sends.
        await anyio.sleep(0.2)
        assert await _stored(client) == stored == _lines(caplog)
        assert [(line["event"], line["user"]) for line in map(json.loads, stored)] == [
            ("changed", ROOT.access_key),
            ("denied", BOB.access_key),
            ("denied", IMPOSTOR.access_key),
            ("changed", ROOT.access_key),
        ]
        assert not [key for key in (ROOT, BOB, IMPOSTOR) if key.secret_key in "".join(stored)]
        assert _outcomes(app) == {("written",): 4}
        assert samples_of(app.metrics, "gantry_audit_topic_lines_total") == {("written",): 4}
        await client.close()
    warnings = [record for record in caplog.records if "audit log is not written" in record.getMessage()]
    assert [record.levelname for record in warnings] == ["WARNING"]
    assert "No topic route info" in warnings[0].getMessage()


async def test_shutdown_writes_the_last_lines_to_the_embedded_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_topic, "_INTERVAL", 3600.0)
    async with replica(tmp_path, auth={"audit_topic": "audit"}) as app:
        client = await Client.connect(app)
        await client.ask(signed(request(RequestCode.UPDATE_AND_CREATE_TOPIC, **CREATE | {"topic": "audit"}), ROOT))
        await client.ask(signed(command(RequestCode.GET_ROUTEINFO_BY_TOPIC), BOB))
        assert await _stored(client) == []
        await client.close()
    async with replica(tmp_path) as again:
        client = await Client.connect(again)
        assert json.loads((await _stored(client))[-1])["user"] == BOB.access_key
        await client.close()


class _Topic:
    """A topic that takes messages, or fails."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.failing = False

    async def send(self, bodies: Sequence[bytes]) -> None:
        if self.failing:
            raise ServiceUnavailable("no broker")
        self.bodies += bodies


def _audit(topic: _Topic) -> AuditTopic:
    _AUDIT.setLevel(logging.INFO)
    return AuditTopic("audit", topic.send)


async def test_lines_beyond_the_limit_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_topic, "_MAX_WAITING", 2)
    topic = _Topic()
    audit = _audit(topic)
    async with audit.collecting():
        for number in range(5):
            _AUDIT.info("%d", number)
    assert topic.bodies == [b"0", b"1"]
    assert audit.counts == {"dropped": 3, "written": 2}


async def test_batch_that_fails_repeatedly_is_given_up_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit_topic, "_MAX_ATTEMPTS", 3)
    monkeypatch.setattr(audit_topic, "_MAX_BATCH", 2)
    topic = _Topic()
    audit = _audit(topic)
    topic.failing = True
    async with audit.collecting(), anyio.create_task_group() as group:
        group.start_soon(audit.run)
        for number in range(3):
            _AUDIT.info("%d", number)
        with anyio.fail_after(10):
            while not audit.counts["failed"]:
                await anyio.sleep(0.001)
        topic.failing = False
        with anyio.fail_after(10):
            while not audit.counts["written"]:
                await anyio.sleep(0.001)
        group.cancel_scope.cancel()
    assert topic.bodies == [b"2"]
    assert audit.counts == {"failed": 2, "written": 1}
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "the audit log is not written to the topic audit, retrying: no broker"
    ]


async def test_waiting_lines_are_sent_at_shutdown_and_later_ones_are_not_collected() -> None:
    topic = _Topic()
    audit = _audit(topic)
    async with audit.collecting():
        _AUDIT.info("last")
    _AUDIT.info("later")
    assert topic.bodies == [b"last"]


async def test_line_is_kept_while_its_sending_is_cancelled() -> None:
    topic = _Topic()
    audit = _audit(topic)
    began = anyio.Event()

    async def hang(_: Sequence[bytes]) -> None:
        began.set()
        await anyio.sleep_forever()

    audit._send = hang
    async with audit.collecting():
        async with anyio.create_task_group() as group:
            group.start_soon(audit.run)
            _AUDIT.info("line")
            with anyio.fail_after(10):
                await began.wait()
            group.cancel_scope.cancel()
        audit._send = topic.send
    assert topic.bodies == [b"line"]


@pytest.mark.parametrize("name", ["", "a b", "orders/1", "a" * 128, "TBW102", "rmq_sys_x"])
def test_setting_is_a_name_of_a_topic_of_users(name: str) -> None:
    with pytest.raises(ValidationError):
        AuthSettings(audit_topic=name)
    assert AuthSettings(audit_topic="Audit-1").audit_topic == "Audit-1"
