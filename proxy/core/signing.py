"""Signatures of the requests to brokers and name servers, as Gantry's own user.

Brokers that check permissions accept signed requests only. A remoting client signs its own: they travel on unchanged,
and the brokers judge them. Gantry signs its own requests, those that stand for gRPC clients' rpcs, and those that it
had to change. It does not sign the requests of remoting clients that brokers hand to another client with all ext
fields: that client could use Gantry's signature for any request, since a signature covers no request code.
"""

from typing import Final

from proxy.core.channel import Channel
from proxy.core.context import Context
from proxy.settings.cluster import ClientSignatures
from proxy.settings.model import Settings
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.signature import SIGNATURE, Credentials, sign, without_signature

# Brokers send them to a client with the ext fields that they have got (AdminBrokerProcessor.callConsumer).
_SHOWN_TO_CLIENTS: Final = (RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY)


class Signer:
    """Signs requests as one user.

    credentials: None to remove signatures instead, for brokers without access control. replaces_signatures: whether
    Gantry signs also the requests that clients have signed. vouches: whether it signs the requests of remoting clients
    without a signature, because it has authenticated their senders. counts: number of signed requests, by their origin.
    """

    def __init__(
        self, credentials: Credentials | None, *, replaces_signatures: bool = False, vouches: bool = False
    ) -> None:
        self._credentials = credentials
        self.replaces_signatures = replaces_signatures
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
        elif self.replaces_signatures or (self._vouches and not command.fields.get(SIGNATURE)):
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


class SigningPolicy:
    """The rules about signatures of clients' requests.

    signer: signs requests to brokers; None if all signatures pass unchanged and Gantry has none. judges_signed,
    judges_unsigned: whether Gantry decides about requests that remoting clients have signed, and about those without a
    signature.
    """

    __slots__ = ("judges_signed", "judges_unsigned", "signer")

    def __init__(
        self, signer: Signer | None = None, judges_signed: bool = False, judges_unsigned: bool = False
    ) -> None:
        self.signer: Final = signer
        self.judges_signed: Final = judges_signed
        self.judges_unsigned: Final = judges_unsigned

    def may_change(self, context: Context) -> bool:
        """Return whether a request may be changed: not if the client's signature of it goes to the brokers."""
        return not context.signed or (self.signer is not None and self.signer.replaces_signatures)

    def left_to_brokers(self, channel: Channel, command: RemotingCommand) -> bool:
        """Return whether brokers alone decide about a request. Unsigned ones they only deny where Gantry must sign."""
        if not channel.signs:
            return False
        if command.fields.get(SIGNATURE):
            return not self.judges_signed
        return self.signer is not None and not self.judges_unsigned


def signing_policy(settings: Settings, authenticates: bool) -> SigningPolicy:
    """Return the policy of the settings. authenticates: whether Gantry authenticates the senders of requests.

    In the mode `check` Gantry decides about all requests even while authentication is off, because all have its own
    signature. The embedded broker has no other judge.
    """
    credentials, signatures = settings.cluster.credentials, settings.cluster.client_signatures
    checks = signatures is ClientSignatures.CHECK
    signer = None
    if credentials is not None or checks:
        signer = Signer(credentials, replaces_signatures=checks, vouches=authenticates)
    if checks or settings.embedded.directory is not None:
        return SigningPolicy(signer, judges_signed=True, judges_unsigned=True)
    return SigningPolicy(signer, authenticates and signatures is not ClientSignatures.PASS, authenticates)
