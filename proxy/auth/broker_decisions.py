"""The mode in which brokers decide about the requests that remoting clients have signed."""

from collections.abc import Callable

from proxy.auth.authority import Authority
from proxy.core.context import Context


class BrokerDecisions:
    """A check that leaves signed requests of remoting clients to the brokers, and others to the authority.

    Brokers get such requests unchanged. They also decide about those that Gantry answers: their denial of a heartbeat,
    or of a query about a group, is passed on. Requests of tools are an exception: some of them reach no broker.

    names_by_user: returns whether traffic rules choose names by user. Then senders whom the authority does not
    authenticate are rejected, since brokers would get their requests with the names of others.
    """

    def __init__(self, authority: Authority, names_by_user: Callable[[], bool] = lambda: False) -> None:
        self._authority = authority
        self._names_by_user = names_by_user

    def __call__(self, context: Context) -> None:
        """Decide about a request. Raises as the authority does."""
        if not passes_authority(context) or (context.principal.failure is not None and self._names_by_user()):
            self._authority(context)


def passes_authority(context: Context) -> bool:
    """Return whether a request is signed by a remoting client, and no tool's: in the mode `pass`, brokers judge it."""
    return context.signed and context.channel.signs and not context.known_spec.tool
