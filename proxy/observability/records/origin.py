"""Who writes records: it stands in every row and every file's name."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """A replica's worker process; started: microseconds since 1970."""

    replica: str
    worker: int
    started: int

    def file_name(self, number: int) -> str:
        """Of its n-th file. Characters that paths and URLs have their own use for are left out."""
        replica = re.sub(r"[^A-Za-z0-9]+", "-", self.replica).strip("-") or "replica"
        return f"{replica}-{self.worker}-{self.started}-{number}.parquet"
