"""Limits, codes and texts of refusals are the official proxy's, on the embedded broker."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.app import App
from proxy.settings.model import Settings
from tests.cluster.grpc.consumer import Consumer, bodies
from tests.cluster.servers import eventually
from tests.official_limits.answers import ask_all, create
from tests.official_limits.cases import CASES
from tests.official_limits.differences import (
    DIFFERENCES,
    EMBEDDED_CODES,
    PAGE,
    REMOTING_DIFFERENCES,
    Difference,
    difference,
    page,
)
from tests.official_limits.official_answers import REMOTING, recorded, unexpected
from tests.official_limits.remoting_answers import ask_all_remoting
from tests.official_limits.remoting_cases import REMOTING_CASES
from tests.official_limits.requests import NORMAL
from tests.proxy.replica import running

pytestmark = pytest.mark.anyio


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    """A replica with default settings and the topics of the table."""
    settings = Settings(listen=["127.0.0.1:0"], embedded={"directory": tmp_path}, drain_timeout=0.2)
    async with running(settings) as app:
        await create(str(app.addresses[0]))
        yield app


def _address(app: App) -> str:
    return str(app.addresses[0])


async def _receive(app: App, consumer: Consumer, *sent: bytes, **system: Any) -> list[Any]:
    """Send messages while a receive waits, and return them as received."""
    receiving = asyncio.ensure_future(consumer.receive_all(len(sent)))
    # A new group starts at the end of the topic.
    await eventually(lambda: app.core.in_flight, "the receive")
    await consumer.send(*sent, **system)
    return await receiving


def test_official_answers_are_recorded_for_every_case() -> None:
    assert recorded().keys() == CASES.keys()
    assert recorded(REMOTING).keys() == REMOTING_CASES.keys()


@pytest.mark.parametrize(
    ("differences", "cases"), [(DIFFERENCES, CASES), (REMOTING_DIFFERENCES, REMOTING_CASES)], ids=["grpc", "remoting"]
)
def test_every_known_difference_has_cases(differences: Sequence[Difference], cases: Collection[str]) -> None:
    labels = [label for item in differences for label in item.labels]
    assert [label for label in labels if not any(case.startswith(label) for case in cases)] == []
    assert sum(difference(label, differences) is not None for label in cases) < len(cases) / 2


def test_documentation_lists_the_differences() -> None:
    text = PAGE.read_text()
    assert page(text) == text, "run python -m tests.official_limits.differences"


async def test_answers_are_the_official_ones(app: App) -> None:
    assert unexpected(await ask_all(_address(app))) == {}


async def test_remoting_requests_get_the_official_codes(app: App) -> None:
    """The texts are the broker's, and those of the embedded broker are its own."""
    official = recorded(REMOTING)
    answers = await ask_all_remoting(_address(app))
    codes = {
        label: answer[0]
        for label, answer in answers.items()
        if difference(label, REMOTING_DIFFERENCES) is None and answer[0] != official[label][0]
    }
    assert codes == EMBEDDED_CODES


async def test_a_body_that_is_no_gzip_is_delivered_as_it_is(app: App) -> None:
    async with Consumer(_address(app), "readers", NORMAL) as consumer:
        (message,) = await _receive(app, consumer, b"plain", body_encoding=d.GZIP)
        assert bodies([message]) == [b"plain"]
        assert message.system_properties.body_encoding == d.IDENTITY


async def test_a_change_after_an_acknowledgement_is_an_invalid_handle(app: App) -> None:
    async with Consumer(_address(app), "readers", NORMAL) as consumer:
        first, second = await _receive(app, consumer, b"1", b"2")
        assert (await consumer.ack(first)).status.code == Code.OK
        refused = await consumer.change(first, 30)
        assert (refused.status.code, refused.status.message) == (
            Code.INVALID_RECEIPT_HANDLE,
            "INVALID_RECEIPT_HANDLE: the message has been consumed already",
        )
        # An acknowledgement may be repeated, and other deliveries are not concerned.
        assert (await consumer.ack(first)).status.code == Code.OK
        assert (await consumer.change(second, 30)).status.code == Code.OK
