"""Settlements suspend the renewal of their deliveries until they end."""

import pytest

from grpc_gateway.consuming.broker_clocks import BrokerClocks
from grpc_gateway.consuming.receipt_handle import ReceiptHandle
from grpc_gateway.consuming.renewal import Renewal
from grpc_gateway.consuming.settlement import Settlement, claim
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.response_status import OK, Refused, status
from protos.apache.rocketmq.v2.definition_pb2 import Code
from tests.grpc_gateway.fakes import FakeCore, make_rpc
from tests.grpc_gateway.messages import receipt_handle

pytestmark = pytest.mark.anyio

_FAILED = status(Code.INTERNAL_SERVER_ERROR, "failed")


class _Delivery:
    """A delivery that is renewed."""

    def __init__(self, age: int = 0) -> None:
        self._core = FakeCore()
        self._renewal = Renewal(self._core, GatewayOptions(), lambda: 1_000.0, "replica")
        self._handle: ReceiptHandle = receipt_handle(age=age, renewal_id=self._renewal.new_renewal_id())
        self._renewal.add(make_rpc().client, "group", "orders", self._handle, 1)

    async def claim(self, may_be_expired: bool = False) -> Settlement:
        return await claim(self._renewal, BrokerClocks(0.5), "group", "orders", self._handle, "", may_be_expired)

    def is_renewed(self) -> bool:
        """Return whether the renewal that is due now is sent."""
        self._renewal.sweep(1_100.0)
        return bool(self._core.handled)

    def is_settled(self) -> bool:
        return len(self._renewal) == 0


@pytest.mark.parametrize("repetitions", [1, 2])
async def test_released_settlement_leaves_the_claim_of_another_one(repetitions: int) -> None:
    delivery = _Delivery()
    released = await delivery.claim()
    await delivery.claim()
    for _ in range(repetitions):
        released.release()
    assert not delivery.is_renewed()


@pytest.mark.parametrize("repetitions", [1, 2])
async def test_failed_settlement_leaves_the_claim_of_another_one(repetitions: int) -> None:
    delivery = _Delivery()
    failed = await delivery.claim()
    await delivery.claim()
    for _ in range(repetitions):
        failed.end(_FAILED)
        failed.release()
    assert not delivery.is_renewed()
    assert failed.status == _FAILED


async def test_delivery_is_renewed_after_its_only_settlement_has_failed() -> None:
    delivery = _Delivery()
    (await delivery.claim()).end(_FAILED)
    assert delivery.is_renewed()


async def test_settlement_that_succeeds_after_its_release_ends_the_renewal() -> None:
    delivery = _Delivery()
    settlement = await delivery.claim()
    settlement.release()
    settlement.end(OK)
    settlement.release()
    assert delivery.is_settled()
    assert not delivery.is_renewed()


async def test_expired_delivery_is_claimed_only_if_it_may_be_expired() -> None:
    delivery = _Delivery(age=70)
    await delivery.claim(may_be_expired=True)
    with pytest.raises(Refused, match="expired"):
        await delivery.claim()
    assert not delivery.is_renewed()
