import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no failure. `make fuzz` takes the profile "fuzz".
settings.register_profile("default", deadline=None)
settings.register_profile("fuzz", deadline=None, max_examples=5000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Coroutine tests run on asyncio only: the connections are asyncio protocols."""
    return "asyncio", {"use_uvloop": False}
