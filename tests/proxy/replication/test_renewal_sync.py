"""Renewal sync over a topic in memory."""

from collections.abc import Callable, Sequence

import anyio
import pytest

from proxy.replication import renewal_sync as module
from proxy.replication.renewal_sync import RenewalSync
from remoting.errors import ServiceUnavailable

pytestmark = pytest.mark.anyio


class FakeTopic:
    """A topic in memory; the first `failures` sends fail."""

    def __init__(self, failures: int = 0) -> None:
        self.sent: list[list[bytes]] = []
        self.failures = failures

    async def send(self, bodies: Sequence[bytes]) -> None:
        if self.failures:
            self.failures -= 1
            raise ServiceUnavailable("no broker")
        self.sent.append(list(bodies))

    async def read(self, take: Callable[[bytes], None]) -> None:
        take(b"from another replica")
        await anyio.sleep_forever()


class FakeRenewal:
    """A renewal with pending messages."""

    def __init__(self, *news: bytes) -> None:
        self.untold = list(news)
        self.received: list[bytes] = []

    def take_messages(self) -> list[bytes]:
        told, self.untold = self.untold, []
        return told

    def receive_message(self, body: bytes) -> None:
        self.received.append(body)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SEND_INTERVAL", 0.01)


def exchange(topic: FakeTopic, renewal: FakeRenewal) -> RenewalSync:
    return RenewalSync(topic, renewal)  # type: ignore[arg-type]


async def test_renewals_are_sent_and_received() -> None:
    topic, renewal = FakeTopic(), FakeRenewal(b"1", b"2")
    async with anyio.create_task_group() as group:
        group.start_soon(exchange(topic, renewal).run)
        with anyio.fail_after(30):
            while not topic.sent:
                await anyio.sleep(0.005)
        group.cancel_scope.cancel()
    assert topic.sent == [[b"1", b"2"]]
    assert renewal.received == [b"from another replica"]


async def test_nothing_is_sent_without_renewals() -> None:
    topic = FakeTopic()
    await exchange(topic, FakeRenewal()).flush()
    assert topic.sent == []


async def test_batches_do_not_exceed_the_brokers_limit() -> None:
    topic = FakeTopic()
    await exchange(topic, FakeRenewal(*(b"%d" % number for number in range(10)))).flush()
    assert [len(bodies) for bodies in topic.sent] == [8, 2]


async def test_failed_send_is_retried() -> None:
    topic = FakeTopic(failures=3)
    await exchange(topic, FakeRenewal(b"1")).flush()
    assert topic.sent == [[b"1"]]


async def test_send_is_abandoned_after_the_last_attempt(caplog: pytest.LogCaptureFixture) -> None:
    topic, renewal = FakeTopic(failures=5), FakeRenewal(b"1")
    await exchange(topic, renewal).flush()
    assert topic.sent == []
    assert "renewals were not sent" in caplog.text
