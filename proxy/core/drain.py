"""The drain of a replica: its clients connect to other ones."""

from typing import Final

from proxy.core.context import Context
from proxy.core.long_poll import end_poll
from remoting.codes import GO_AWAY_VERSION, RequestCode
from remoting.errors import GoAway
from remoting.outcomes import Reply

_REMARK: Final = "this replica is going away; connect again"
# A client that leaves need not connect again.
_FAREWELLS: Final = (RequestCode.UNREGISTER_CLIENT,)


class Drain:
    """Rejects requests with GO_AWAY while the replica drains, for clients that support it.

    Oneway requests are still served: their senders would not notice a rejection.
    """

    def __init__(self) -> None:
        # Health checks fail from `announced` on, requests are rejected from `draining` on.
        self.announced = False
        self.draining = False
        # The clients' long polls in flight, by their replies.
        self.polls: dict[Reply, Context] = {}

    def check(self, context: Context) -> None:
        """Reject a request while the replica drains, if its client can take it elsewhere."""
        command = context.command
        if accepts_go_away(context) and not command.is_oneway and context.code not in _FAREWELLS:
            raise GoAway(_REMARK)

    def start(self) -> None:
        """Reject requests from now on, and end the long polls."""
        self.announced = self.draining = True
        for reply, context in list(self.polls.items()):
            if _may_end_poll(context):
                end_poll(reply, GoAway(_REMARK))

    def stop(self) -> None:
        """Serve all requests again."""
        self.announced = self.draining = False


def accepts_go_away(context: Context) -> bool:
    """Return whether the client reconnects when it receives GO_AWAY."""
    return context.channel.supports_go_away and context.command.version > GO_AWAY_VERSION


def _may_end_poll(context: Context) -> bool:
    """Return whether GO_AWAY may end this long poll.

    True if the client reconnects, and for gRPC clients, whose frontend answers such a poll with "no message".
    """
    return accepts_go_away(context) or not context.channel.supports_go_away
