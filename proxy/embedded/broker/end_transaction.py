"""END_TRANSACTION: a producer commits or rolls back what it has prepared (RocketMQ's EndTransactionProcessor)."""

from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.request import Answer, Refused, Request
from remoting import command as commands
from remoting import properties
from remoting.codes import ResponseCode
from remoting.messages import StoredMessage, SysFlag

_COMMIT = int(SysFlag.TRANSACTION_COMMIT)
_ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)


def end(broker: Broker, request: Request) -> Answer:
    """Commit or roll back; one that has ended before stays as it is. A producer that does not know gets no answer."""
    how = request.number("commitOrRollback")
    group, offset = request.text("producerGroup"), request.number("commitLogOffset")
    state_offset = request.number("tranStateTableOffset")
    if how not in {_COMMIT, _ROLLBACK}:
        return None
    found = broker.transactions.find(offset)
    if found is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"there is no half message at commit log offset {offset}")
    message, waits = found
    _check(message, group, state_offset)
    if not waits:
        return commands.success()
    if not request.flag("fromTransactionCheck") and not broker.transactions.immune(offset, request.now):
        raise Refused(ResponseCode.ILLEGAL_OPERATION, "the time for ending this transaction without a check is over")
    if how == _COMMIT:
        broker.transactions.commit(message, request.now)
    else:
        broker.transactions.roll_back(message)
    return broker.durable(commands.success())


def _check(message: StoredMessage, group: str, state_offset: int) -> None:
    if message.get(properties.PRODUCER_GROUP) != group:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the half message is not of producer group {group}")
    if message.queue_offset != state_offset:
        raise Refused(ResponseCode.SYSTEM_ERROR, "the offset in the queue of half messages is wrong")
