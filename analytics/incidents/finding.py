"""A finding: one deviation that one detector saw. Incidents are made of findings (`merging.py`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from analytics.incidents.kinds import Kind

# Attributes of a subject, from the widest to the narrowest.
ATTRIBUTES = ("tenant", "replica", "broker", "network", "version", "sdk", "topic", "group", "queue", "client", "key")


@dataclass(frozen=True, slots=True)
class Finding:
    """A deviation. start, end: seconds since 1970; open: it lasts to the end of the records. about: the subject, by
    ATTRIBUTES. likelihood: logarithm of how much likelier the records are with the deviation than without. affected:
    requests or messages; clients: those concerned. facts: further evidence for the sentence.
    """

    kind: Kind
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

    @property
    def scope(self) -> frozenset[tuple[str, str]]:
        """Attributes by which the finding was made; the others are common to its events."""
        names = self.facts.get("scope", "+".join(self.about)).split("+")
        return frozenset((name, self.about[name]) for name in names if name in self.about and name != "key")

    @property
    def is_wide(self) -> bool:
        """Whether a broker, a replica, a network or the service as a whole is concerned."""
        return {name for name, _ in self.scope} <= {"broker", "replica", "network"}
