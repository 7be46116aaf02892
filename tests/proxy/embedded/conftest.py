import pytest

from tests.proxy.embedded.broker_harness import BrokerHarness


@pytest.fixture
async def harness() -> BrokerHarness:
    return BrokerHarness()
