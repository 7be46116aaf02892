"""The polling time of receives."""

import pytest

from protos.apache.rocketmq.v2.definition_pb2 import Code
from tests.grpc_gateway.consuming.receive_harness import ReceiveHarness
from tests.grpc_gateway.messages import consumer_settings

pytestmark = pytest.mark.anyio


# Brokers end a poll up to 50 ms early, by a clock of whole ms.
BROKER_MARGIN = 51


@pytest.mark.parametrize(
    ("wait", "remaining", "expected"),
    [
        (None, None, 20_000),
        (None, 30.0, 20_000),
        (None, 10.0, 9_000),
        (10, None, 10_000),
        (10, 13.0, 10_000),
        (10, 10.2, 10_000),
        (10, 10.1, 9_100),
        (10, 8.0, 7_000),
        (1, None, 5_000),
        (1, 5.5, 5_000),
        (40, 40.0, 20_000),
        (20, 5.0, 4_000),
    ],
)
async def test_polling_time_is_limited_by_options_and_deadline(
    wait: float | None, remaining: float | None, expected: int
) -> None:
    fields = await ReceiveHarness(remaining=remaining).pop_fields(wait=wait)
    assert int(fields["pollTime"]) == expected + BROKER_MARGIN


@pytest.mark.parametrize(
    ("request_timeout", "remaining", "expected"),
    [(3.0, 13.0, 11_500), (10.0, 13.0, 8_000), (20.0, 13.0, 5_000), (0.0, 13.0, 12_000), (3.0, 60.0, 20_000)],
)
async def test_polling_time_without_a_requested_one_leaves_half_the_request_timeout(
    request_timeout: float, remaining: float, expected: int
) -> None:
    harness = ReceiveHarness(remaining=remaining)
    settings = consumer_settings()
    settings.request_timeout.FromMilliseconds(int(request_timeout * 1000))
    harness.rpc.client.settings = settings
    assert int((await harness.pop_fields())["pollTime"]) == expected + BROKER_MARGIN


@pytest.mark.parametrize(
    ("version", "code"),
    [
        ("", Code.BAD_REQUEST),
        ("5.0.2", Code.BAD_REQUEST),
        ("5.0.3", Code.ILLEGAL_POLLING_TIME),
        ("5.0.7", Code.ILLEGAL_POLLING_TIME),
    ],
)
async def test_receive_without_time_before_the_deadline_is_rejected(version: str, code: int) -> None:
    harness = ReceiveHarness(remaining=0.9)
    harness.rpc.client.version = version
    assert await harness.code() == code
