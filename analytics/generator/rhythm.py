"""How load follows the day and the week."""

import math
from datetime import datetime

from analytics.generator.world import Tenant

# What machines ask at night, of the busiest hour.
_NIGHT = 0.15


def load(tenant: Tenant, time: datetime) -> float:
    """The tenant's load at a time, against that of its busiest hour of a working day."""
    hours = time.hour + time.minute / 60 - tenant.peak
    day = (1 + math.cos(2 * math.pi * hours / 24)) / 2
    awake = _NIGHT + (1 - _NIGHT) * day * math.sqrt(day)
    return awake * (tenant.weekend if time.weekday() >= 5 else 1.0)
