"""Signatures of the requests to brokers and name servers, as Gantry's own user.

Brokers that check permissions accept signed requests only. A remoting client signs its own: they travel on unchanged,
and the brokers judge them. Gantry signs its own requests, those that stand for gRPC clients' rpcs, and those that it
had to change. It does not sign the requests of remoting clients that brokers hand to another client with all ext
fields: that client could use Gantry's signature for any request, since a signature covers no request code.
"""

from typing import Final

from proxy.core.channel import Channel
from proxy.settings.cluster import ClientSignatures, ClusterSettings
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.signature import SIGNATURE, Credentials, sign, without_signature

# Brokers send them to a client with the ext fields that they have got (AdminBrokerProcessor.callConsumer).
_SHOWN_TO_CLIENTS: Final = (RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY)


class Signer:
    """Signs requests as one user.

    credentials: None to remove signatures instead, for brokers without access control. resigns: whether Gantry signs
    also the requests that clients have signed. vouches: whether it signs the requests of remoting clients without a
    signature, because it has authenticated their senders. counts: number of signed requests, by their origin.
    """

    def __init__(self, credentials: Credentials | None, *, resigns: bool = False, vouches: bool = False) -> None:
        self._credentials = credentials
        self.resigns = resigns
        self._vouches = vouches
        self.counts = {"gantry": 0, "client": 0}

    def sign(self, command: RemotingCommand) -> None:
        """Sign a request of Gantry itself. The command gets its own ext fields: observers see the client's."""
        self.counts["gantry"] += 1
        self._sign(command)

    def sign_outgoing(self, channel: Channel | None, command: RemotingCommand) -> None:
        """Sign a request that a channel sends to a broker (None: Gantry itself), unless the client's own stands."""
        if channel is None or not channel.signs:
            self.counts["gantry"] += 1
        elif command.code in _SHOWN_TO_CLIENTS:
            if self._credentials is None:
                # Brokers without access control need none.
                command.set_fields(without_signature(command.fields))
            return
        elif self.resigns or (self._vouches and not command.fields.get(SIGNATURE)):
            self.counts["client"] += 1
        else:
            return
        self._sign(command)

    def sign_changed(self, command: RemotingCommand) -> None:
        """Sign a client's request that was changed, if the client had signed it."""
        if command.fields.get(SIGNATURE):
            self.counts["client"] += 1
            self._sign(command)

    def _sign(self, command: RemotingCommand) -> None:
        command.set_fields(dict(command.fields))
        if self._credentials is not None:
            sign(command, self._credentials)
        else:
            command.set_fields(without_signature(command.fields))


def new_signer(settings: ClusterSettings, authenticates: bool) -> Signer | None:
    """Return the signer of the settings; None if all signatures pass unchanged and Gantry has none.

    authenticates: whether Gantry authenticates the senders of requests.
    """
    credentials, resigns = settings.credentials, settings.client_signatures is ClientSignatures.CHECK
    if credentials is None and not resigns:
        return None
    return Signer(credentials, resigns=resigns, vouches=authenticates)
