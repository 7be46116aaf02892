"""The plan: parameters of generated records."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta


@dataclass(frozen=True, slots=True)
class Plan:
    """Size and seed; the same plan gives the same records, on any machine and with any number of processes.

    records: requests, to within a few percent (arrivals are random). incidents: number of each kind.
    """

    records: int = 1_000_000
    start: date = date(2026, 10, 19)
    days: int = 7
    seed: int = 1
    tenants: int = 8
    incidents: int = 1

    def __post_init__(self) -> None:
        for name, least in (("records", 1), ("days", 1), ("tenants", 1), ("incidents", 0), ("seed", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")

    @property
    def begin(self) -> datetime:
        """The first instant, midnight UTC."""
        return datetime(self.start.year, self.start.month, self.start.day, tzinfo=UTC)

    @property
    def end(self) -> datetime:
        """The instant after the last."""
        return self.begin + timedelta(days=self.days)

    @property
    def hours(self) -> int:
        return self.days * 24
