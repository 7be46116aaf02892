"""Handlers of GET_BROKER_RUNTIME_INFO and GET_BROKER_CONFIG: state and settings of the broker."""

import dataclasses

import orjson

from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.errors import Refused
from proxy.embedded.broker.request import Answer, Request, java_bool
from remoting import command as commands
from remoting.codes import OWN_VERSION, ResponseCode, version_text


def runtime(broker: Broker, request: Request) -> Answer:
    """GET_BROKER_RUNTIME_INFO: return a KVTable with the keys that tools read."""
    stored, delivered = (_rate(broker, request, name) for name in ("BROKER_PUT_NUMS", "BROKER_GET_NUMS"))
    table = {
        "brokerVersion": str(OWN_VERSION),
        "brokerVersionDesc": f"V{version_text(OWN_VERSION).replace('.', '_')}",
        "brokerActive": "true",
        "bootTimestamp": str(broker.started),
        "runtime": _duration(request.now - broker.started),
        "putTps": stored,
        "getTransferredTps": delivered,
        "getTotalTps": delivered,
        **_totals(broker),
        "earliestMessageTimeStamp": str(broker.started),
        **dict.fromkeys(_ZEROS, "0"),
        "producerGroups": str(len(broker.members.producers)),
        "consumerGroups": str(len(broker.members.consumers)),
        "waitingPulls": str(broker.waiting_pulls.total),
        "waitingPops": str(broker.waiting_pops.total),
        "unacknowledgedPops": str(len(broker.checkpoints)),
        "waitingTimers": str(broker.pipeline.delayed),
        "halfMessages": str(len(broker.transactions)),
    }
    return commands.success(body=orjson.dumps({"table": table}))


_ZEROS = (
    "commitLogDiskRatio",
    "consumeQueueDiskRatio",
    "sendThreadPoolQueueSize",
    "pullThreadPoolQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "pageCacheLockTimeMills",
    "timerReadBehind",
    "timerOffsetBehind",
    "timerCongestNum",
    "timerEnqueueTps",
    "timerDequeueTps",
)


def _rate(broker: Broker, request: Request, name: str) -> str:
    """Return messages per second of the last minute; tools read the first number of several."""
    return f"{broker.statistics.rate(name, broker.settings.cluster, request.now):.2f}"


def _totals(broker: Broker) -> dict[str, str]:
    """Return the totals from which tools subtract one another for the messages of today and of yesterday."""
    times = {
        "YesterdayMorning": broker.statistics.yesterday_morning,
        "TodayMorning": broker.statistics.today_morning,
        "TodayNow": broker.statistics.counts,
    }
    return {
        f"msg{name}Total{time}": str(counts[key])
        for name, key in (("Put", "put"), ("Get", "got"))
        for time, counts in times.items()
    }


def _duration(milliseconds: int) -> str:
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


# RocketMQ's options by the names of settings; other settings have no option of the same meaning.
_OPTIONS = {
    "name": "brokerName",
    "cluster": "brokerClusterName",
    "host": "brokerIP1",
    "port": "listenPort",
    "region": "regionId",
    "trace": "traceOn",
    "auto_create_topics": "autoCreateTopicEnable",
    "auto_create_groups": "autoCreateSubscriptionGroup",
    "default_queues": "defaultTopicQueueNums",
    "max_message_size": "maxMessageSize",
    "server_side_reset": "useServerSideResetOffset",
    "recall": "recallMessageEnable",
    "store_replies": "storeReplyMessageEnable",
    "delay_ladder": "messageDelayLevel",
    "max_delay": "timerMaxDelaySec",
    "timer_precision": "timerPrecisionMs",
    "transaction_timeout": "transactionTimeOut",
    "transaction_interval": "transactionCheckInterval",
    "transaction_checks": "transactionCheckMax",
    "retry_topic_v2": "enableRetryTopicV2",
    "retry_probability": "popFromRetryProbability",
    "max_polls": "maxPopPollingSize",
    "max_polls_per_queue": "popPollingSize",
    "member_expiry": "channelExpiredTimeout",
}
# Milliseconds of the units of delay levels, the largest first.
_UNITS = {"h": 3_600_000, "m": 60_000, "s": 1000}


def _level(delay: int) -> str:
    """Return a delay (ms) as messageDelayLevel has it."""
    return next((f"{delay // size}{unit}" for unit, size in _UNITS.items() if delay % size == 0), f"{delay / 1000}s")


def config(broker: Broker, _: Request) -> Answer:
    """GET_BROKER_CONFIG: return the settings as lines of key and value, with RocketMQ's names."""
    values = {_OPTIONS.get(key, key): value for key, value in dataclasses.asdict(broker.settings).items()}
    values |= {
        "brokerId": 0,
        "brokerRole": "ASYNC_MASTER",
        "enablePropertyFilter": True,
        "messageDelayLevel": " ".join(map(_level, broker.settings.delay_ladder)),
        "timerMaxDelaySec": broker.settings.max_delay // 1000,
    }
    lines = [f"{key}={java_bool(value) if isinstance(value, bool) else value}" for key, value in values.items()]
    return commands.success({"version": "{}"}, "\n".join(lines).encode() + b"\n")


def statistics(broker: Broker, request: Request) -> Answer:
    """VIEW_BROKER_STATS_DATA: return the figures of one topic, group or cluster as a BrokerStatsData."""
    name, key = request.text("statsName"), request.text("statsKey")
    figures = broker.statistics.figures(name, key, request.now)
    if figures is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the broker has no statistics {name} of {key}")
    return commands.success(body=orjson.dumps(figures))


def replication(_: Broker, __: Request) -> Answer:
    """GET_BROKER_HA_STATUS: the broker is a master without slaves."""
    return commands.success(body=orjson.dumps({"master": True, "inSyncSlaveNums": 0, "haConnectionInfo": []}))


def clean(_: Broker, __: Request) -> Answer:
    """CLEAN_*, DELETE_EXPIRED_COMMITLOG: nothing to do: upkeep removes expired messages, which leave no files."""
    return commands.success()
