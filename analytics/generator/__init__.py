"""Generated traffic records of a fictional deployment, of any size, for tests, demonstrations and benchmarks.

Tenants with their own daily rhythm, topics, groups and clients; load that follows waking hours; and incidents whose
place and time are recorded, so that findings can be evaluated.
"""

from analytics.generator.generation import generate
from analytics.generator.plan import Plan
from analytics.generator.truth import Incident, Truth, load

__all__ = ["Incident", "Plan", "Truth", "generate", "load"]
