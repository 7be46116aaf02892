"""A finding: one deviation that one detector saw. Incidents are made of findings (`merging.py`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

# Attributes of a subject, from the widest to the narrowest.
ATTRIBUTES = ("tenant", "replica", "broker", "network", "version", "sdk", "topic", "group", "queue", "client", "key")


@dataclass(frozen=True, slots=True)
class Finding:
    """A deviation. start, end: seconds since 1970; open: it lasts to the end of the records. about: the subject, by
    ATTRIBUTES. likelihood: logarithm of how much likelier the records are with the deviation than without. affected:
    requests or messages; clients: those concerned. facts: further evidence for the sentence.
    """

    kind: str
    start: float
    end: float
    about: Mapping[str, str]
    observed: float
    expected: float
    likelihood: float
    affected: float = 0.0
    clients: int = 0
    open: bool = False
    facts: Mapping[str, str] = field(default_factory=dict)
