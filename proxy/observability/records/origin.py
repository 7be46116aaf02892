"""Origin of records, in every row and file name."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """The worker process that writes records. started: microseconds since 1970."""

    replica: str
    worker: int
    started: int

    def file_name(self, number: int) -> str:
        """Return the name of the process's file with this number, without characters special in paths and URLs."""
        replica = re.sub(r"[^A-Za-z0-9]+", "-", self.replica).strip("-") or "replica"
        return f"{replica}-{self.worker}-{self.started}-{number}.parquet"
