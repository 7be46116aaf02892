"""Handler of END_TRANSACTION (RocketMQ's EndTransactionProcessor)."""

from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.errors import Refused
from proxy.embedded.broker.request import Answer, Request
from remoting import command as commands
from remoting import properties
from remoting.codes import ResponseCode
from remoting.messages import StoredMessage, SysFlag

_COMMIT = int(SysFlag.TRANSACTION_COMMIT)
_ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)


def end(broker: Broker, request: Request) -> Answer:
    """END_TRANSACTION: commit or roll back an unresolved half message; an unknown state gets no response."""
    resolution = request.number("commitOrRollback")
    group, offset = request.text("producerGroup"), request.number("commitLogOffset")
    state_offset = request.number("tranStateTableOffset")
    if resolution not in {_COMMIT, _ROLLBACK}:
        return None
    half = broker.transactions.find(offset)
    if half is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"there is no half message at commit log offset {offset}")
    message, unresolved = half
    _check(message, group, state_offset)
    if not unresolved:
        return commands.success()
    if not request.flag("fromTransactionCheck") and not broker.transactions.may_end(offset, request.now):
        raise Refused(ResponseCode.ILLEGAL_OPERATION, "the time to end this transaction without a check is over")
    if resolution == _COMMIT:
        broker.transactions.commit(message, request.now)
    else:
        broker.transactions.roll_back(message)
    return broker.when_durable(commands.success())


def _check(message: StoredMessage, group: str, state_offset: int) -> None:
    if message.get(properties.PRODUCER_GROUP) != group:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the half message is not of producer group {group}")
    if message.queue_offset != state_offset:
        raise Refused(ResponseCode.SYSTEM_ERROR, "the offset in the queue of half messages is wrong")
