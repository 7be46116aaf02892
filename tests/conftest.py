import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no failure: neither a deadline nor `too_slow`, which measure the machine as much as the test.
# `make fuzz` takes the profile "fuzz".
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fuzz", settings.get_profile("default"), max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Coroutine tests run on asyncio only: the connections are asyncio protocols."""
    return "asyncio", {"use_uvloop": False}
