"""Interface that maps a client's topic and group names to those of the brokers."""

from typing import Any, Protocol


class UnmappedName(Exception):
    """A name at the brokers that has no counterpart for the client."""


class NameMapping(Protocol):
    """Replaces topic and group names in v2 messages, in place.

    Mappings that compare equal have the same hash and map all names alike.
    """

    def map_request(self, message: Any) -> None:
        """Replace the client's names with the brokers' in a message from the client. Raises Refused."""

    def map_response(self, message: Any) -> None:
        """Replace the brokers' names with the client's in a message to the client.

        Raises UnmappedName if the client must not get the message; then the names in it are undefined.
        """
