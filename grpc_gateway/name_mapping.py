"""Names of a client's own for topics and groups. What they are is not decided here."""

from typing import Any, Protocol


class Names(Protocol):
    """Puts names in the place of others, in messages of the contract. Equal ones name alike, and have one hash."""

    def inward(self, message: Any) -> None:
        """Put the brokers' names into what came from the client. Raises Refused."""

    def outward(self, message: Any) -> None:
        """Put the client's names into what it is told."""
