"""The daily and weekly rhythm of load."""

import math
from datetime import datetime

from analytics.generator.world import Tenant

# Load of machines at night, against the busiest hour.
_NIGHT = 0.15


def load(tenant: Tenant, time: datetime) -> float:
    """Return the tenant's load at a time, against that of its busiest hour of a working day."""
    hours = time.hour + time.minute / 60 - tenant.peak
    day = (1 + math.cos(2 * math.pi * hours / 24)) / 2
    awake = _NIGHT + (1 - _NIGHT) * day * math.sqrt(day)
    return awake * (tenant.weekend if time.weekday() >= 5 else 1.0)
