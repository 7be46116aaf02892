"""The state of a client's membership: its last heartbeat, and the brokers that know it."""

import math

from proxy.core import heartbeat as heartbeats
from proxy.core.client_registry import Groups
from remoting.command import RemotingCommand


class MembershipState:
    """The state of one client's membership.

    heartbeat, heartbeat_at: the last heartbeat, and the time in seconds at which it arrived. heartbeat_accepted:
    whether its sender has the permissions for it, as Gantry or a broker has decided. joining: the groups in heartbeats
    that no broker has accepted yet. known_brokers: names of the brokers that routes have given to the client.
    registered_brokers: those of them at which the client was registered.
    """

    __slots__ = (
        "heartbeat",
        "heartbeat_accepted",
        "heartbeat_at",
        "joining",
        "known_brokers",
        "registered_brokers",
    )

    def __init__(self) -> None:
        self.heartbeat: RemotingCommand | None = None
        self.heartbeat_at = -math.inf
        self.heartbeat_accepted = False
        self.joining = Groups()
        self.known_brokers: set[str] = set()
        self.registered_brokers: set[str] = set()

    @property
    def without_heartbeat(self) -> bool:
        """Whether the client has sent no heartbeat, or has left before a broker accepted one."""
        return self.heartbeat is None

    def record(self, command: RemotingCommand, now: float, accepted: bool) -> None:
        """Record a heartbeat that has arrived."""
        self.heartbeat, self.heartbeat_at, self.heartbeat_accepted = command, now, accepted

    def accept(self) -> None:
        """Record that the sender has the permissions for the last heartbeat."""
        self.heartbeat_accepted = True
        self.joining = Groups()

    def fall_back(self, last: RemotingCommand | None) -> None:
        """Return to the heartbeat that was accepted before, if any: no broker has answered to the last one.

        Brokers that come back get the heartbeat that they know, and the client repeats the last one.
        """
        self.heartbeat, self.heartbeat_at, self.heartbeat_accepted = last, -math.inf, last is not None
        self.joining = Groups()

    def drop(self, groups: Groups, stays: bool) -> RemotingCommand | None:
        """Forget groups that the client leaves. stays: whether it is still in another one.

        Returns the heartbeat if it has changed, since it must not contain the left groups: brokers that restart receive
        it.
        """
        # If the client returns, an equal heartbeat must not count as a repetition.
        self.heartbeat_at = -math.inf
        self.joining -= groups
        changed = None
        if not self.heartbeat_accepted:
            # Gantry's signature would be a permission that no broker has granted.
            self.heartbeat = None
        elif self.heartbeat is not None and stays:
            changed = self.heartbeat = self.heartbeat.copy()
            changed.body = heartbeats.without(changed.body, groups)
        if not stays:
            self.heartbeat_accepted = False
        return changed
