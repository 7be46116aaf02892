"""Traffic records of a world that does not exist: for tests, demonstrations and benchmarks, at any size.

Tenants with their own days, topics, groups and clients; load that follows people's waking hours; and incidents whose
place and time are written down, so that what the detectors find can be judged.
"""

from analytics.generator.generation import generate
from analytics.generator.plan import Plan
from analytics.generator.truth import Incident, Truth, load

__all__ = ["Incident", "Plan", "Truth", "generate", "load"]
