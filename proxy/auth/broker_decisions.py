"""The mode in which brokers decide about the requests that remoting clients have signed."""

from proxy.auth.authority import Authority
from proxy.core.context import Context
from remoting.signature import SIGNATURE


class BrokerDecisions:
    """A check that leaves signed requests of remoting clients to the brokers, and others to the authority.

    Brokers get such requests unchanged. They also decide about those that Gantry answers: their denial of a heartbeat,
    or of a query about a group, is passed on. Requests of tools are an exception: some of them reach no broker.
    """

    def __init__(self, authority: Authority) -> None:
        self._authority = authority

    def __call__(self, context: Context) -> None:
        """Decide about a request. Raises as the authority does."""
        if SIGNATURE not in context.fields or not context.channel.signs or context.known_spec.tool:
            self._authority(context)
