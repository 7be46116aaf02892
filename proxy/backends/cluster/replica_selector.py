"""Selection of the replicas of a broker, master or slaves, that may serve a request. Sans-io."""

from collections import Counter
from collections.abc import Callable, Collection

from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import ServiceUnavailable
from remoting.requests import Action, ReplicaChoice, RequestSpec
from remoting.routes import Replicas

# Seconds for which reads that a slave can serve avoid a master that could not be reached.
_AVOID_SECONDS = 1.0
# Maximum number of readers whose broker's suggestion is kept.
_MAX_SUGGESTIONS = 100_000

# For every request: reading a member from its enum takes longer than all else in `select`.
_SEND_BACK = int(RequestCode.CONSUMER_SEND_MSG_BACK)
_MASTER, _ACTING_MASTER = ReplicaChoice.MASTER, ReplicaChoice.ACTING_MASTER
_UPDATE = Action.UPDATE

# A consumer group's reads of one queue: broker, topic, queue id, group.
Reader = tuple[str, str, str, str]


class ReplicaSelector:
    """Selects replicas by the request's kind, recent failures, and the brokers' suggestions to readers.

    diverted: number of requests not routed to their primary target, by reason. sent_back: number of
    CONSUMER_SEND_MSG_BACK requests, by target.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Broker ids other than the master's that brokers suggested to readers.
        self._suggested: dict[Reader, int] = {}
        # The time in seconds of an address's last failure.
        self._failed: dict[str, float] = {}
        self.diverted: Counter[str] = Counter()
        self.sent_back: Counter[str] = Counter()

    def select(self, replicas: Replicas, spec: RequestSpec, command: RemotingCommand) -> list[str]:
        """Return the addresses that may serve a request, the preferred one first.

        Raises ServiceUnavailable if there are none.
        """
        master, slaves = replicas.master, replicas.slaves
        if spec.code == _SEND_BACK:
            self.sent_back[_send_back_target(replicas)] += 1
        if spec.replica is _MASTER or (spec.replica is _ACTING_MASTER and not replicas.acting_master):
            if master is None:
                self.diverted["no_master"] += 1
                raise ServiceUnavailable(
                    f"the broker {replicas.name} has no master now; only the master serves {spec.name}"
                )
            return replicas.masters
        if master is None:
            if not slaves:
                self.diverted["no_replica"] += 1
                raise ServiceUnavailable(f"the broker {replicas.name} has no live replica now")
            self.diverted["slave"] += 1
            return slaves
        if spec.replica is _ACTING_MASTER:
            # A slave serves these only if there is no master at all.
            return replicas.masters
        if spec.poll is not None and self._suggested:
            suggested = replicas.addresses.get(self._suggested.get(reader(replicas.name, command), 0))
            if suggested is not None and suggested != master:
                return [suggested, master]
        if spec.action is _UPDATE:
            # The master overwrites offsets that were committed on a slave.
            return replicas.masters
        if slaves and self._is_avoided(master):
            self.diverted["slave"] += 1
            return [*slaves, master]
        return replicas.all

    def _is_avoided(self, address: str) -> bool:
        failed = self._failed.get(address)
        return failed is not None and self._clock() - failed < _AVOID_SECONDS

    def note_failure(self, address: str) -> None:
        """Record that an address could not be reached or lost its connection."""
        self._failed[address] = self._clock()

    def keep_failures(self, addresses: Collection[str]) -> None:
        """Drop the failures of all other addresses."""
        self._failed = {address: failed for address, failed in self._failed.items() if address in addresses}

    def note_reply(self, reader: Reader, reply: RemotingCommand) -> None:
        """Record which broker id the broker suggests for the next read: clients cannot pass it through a proxy."""
        suggested = reply.fields.get("suggestWhichBrokerId", "0")
        if suggested != "0" and suggested.isdecimal():
            if len(self._suggested) >= _MAX_SUGGESTIONS:
                # Most are of readers that have left; active readers receive their suggestion again.
                self._suggested.clear()
            self._suggested[reader] = int(suggested)
        elif self._suggested:
            self._suggested.pop(reader, None)


def reader(broker: str, command: RemotingCommand) -> Reader:
    """Return the reader of a pull or pop request."""
    fields = command.fields
    return broker, fields.get("topic", ""), fields.get("queueId", ""), fields.get("consumerGroup", "")


def _send_back_target(replicas: Replicas) -> str:
    """Return the kind of broker that takes a message which a consumer sends back: only one that may write it."""
    if replicas.master is not None:
        return "master"
    return "acting_master" if replicas.acting_master and replicas.slaves else "none"
