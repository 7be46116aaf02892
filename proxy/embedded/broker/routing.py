"""Requests to a name server, served by the broker itself: routes, brokers, topics, key-value pairs."""

from collections.abc import Iterable
from typing import Any

import orjson

from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.errors import Refused, refusal
from proxy.embedded.broker.request import Answer, Request
from proxy.embedded.broker.topics import UNIT, UNIT_SUBSCRIPTION
from remoting import command as commands
from remoting import fastjson, routes
from remoting.codes import STANDARD_JSON_VERSION, ResponseCode
from remoting.messages import Permission
from remoting.names import is_system, reply_topic
from remoting.routes import MASTER_ID, TopicRoute

_ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"


def route_of(broker: Broker, topic: str) -> TopicRoute | None:
    """Return a topic's route; None for an unknown topic."""
    config = broker.topics.get(topic)
    if config is None:
        return None
    settings = broker.settings
    order = broker.kv_config.get(_key(_ORDER_NAMESPACE, topic))
    data: dict[str, Any] = {
        "queueDatas": [_readable(config.route(settings.name), broker)],
        "brokerDatas": [
            {
                "cluster": settings.cluster,
                "brokerName": settings.name,
                "brokerAddrs": {MASTER_ID: settings.address},
                "enableActingMaster": False,
            }
        ],
        "filterServerTable": {},
    }
    if order is not None:
        data["orderTopicConf"] = order.decode()
    return TopicRoute(topic, data, (settings.name,))


def _readable(queues: dict[str, Any], broker: Broker) -> dict[str, Any]:
    """Return a QueueData; without the permission to write while tools have taken it from the broker."""
    return queues if broker.listed_writable else {**queues, "perm": queues["perm"] & ~Permission.WRITE}


def route(broker: Broker, request: Request) -> Answer:
    """GET_ROUTEINFO_BY_TOPIC, in the dialect of JSON that the client reads."""
    topic = request.text("topic")
    topic_route = route_of(broker, topic)
    if topic_route is None:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {topic}")
    standard = request.command.version >= STANDARD_JSON_VERSION or request.flag("acceptStandardJsonOnly")
    return commands.success(body=routes.encode(topic_route, lambda _: broker.settings.address, standard))


def cluster(broker: Broker, _: Request) -> Answer:
    """GET_BROKER_CLUSTER_INFO."""
    settings = broker.settings
    replicas = {
        "brokerName": settings.name,
        "cluster": settings.cluster,
        "brokerAddrs": {MASTER_ID: settings.address},
        "enableActingMaster": False,
    }
    data = {"brokerAddrTable": {settings.name: replicas}, "clusterAddrTable": {settings.cluster: [settings.name]}}
    return commands.success(body=fastjson.dumps(data))


def topics(broker: Broker, _: Request) -> Answer:
    """GET_ALL_TOPIC_LIST_FROM_NAMESERVER."""
    return topic_list(topic.name for topic in broker.topics)


def topics_of_cluster(broker: Broker, request: Request) -> Answer:
    """GET_TOPICS_BY_CLUSTER."""
    return topic_list(topic.name for topic in broker.topics if request.text("cluster") == broker.settings.cluster)


def system_topics(broker: Broker, _: Request) -> Answer:
    """GET_SYSTEM_TOPIC_LIST_FROM_NS."""
    return topic_list(_system_topics(broker), broker.settings.address)


def brokers_system_topics(broker: Broker, _: Request) -> Answer:
    """GET_SYSTEM_TOPIC_LIST_FROM_BROKER."""
    return topic_list(_system_topics(broker))


def _system_topics(broker: Broker) -> list[str]:
    settings = broker.settings
    own_names = {settings.cluster, settings.name, reply_topic(settings.cluster)}
    return [topic.name for topic in broker.topics if is_system(topic.name) or topic.name in own_names]


def unit_topics(broker: Broker, _: Request) -> Answer:
    """GET_UNIT_TOPIC_LIST."""
    return topic_list(topic.name for topic in broker.topics if topic.sys_flag & UNIT)


def unit_retry_topics(broker: Broker, _: Request) -> Answer:
    """GET_HAS_UNIT_SUB_TOPIC_LIST."""
    return topic_list(topic.name for topic in broker.topics if topic.sys_flag & UNIT_SUBSCRIPTION)


def lone_unit_retry_topics(broker: Broker, _: Request) -> Answer:
    """GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST."""
    both = UNIT | UNIT_SUBSCRIPTION
    return topic_list(topic.name for topic in broker.topics if topic.sys_flag & both == UNIT_SUBSCRIPTION)


def topic_list(topics: Iterable[str], address: str | None = None) -> Answer:
    """Return a response with a TopicList."""
    data: dict[str, Any] = {"topicList": sorted(topics)}
    if address is not None:
        data["brokerAddr"] = address
    return commands.success(body=orjson.dumps(data))


def delete_topic(_: Broker, __: Request) -> Answer:
    """DELETE_TOPIC_IN_NAMESRV: nothing to do, because routes are derived from the broker's topics."""
    return commands.success()


def config(broker: Broker, _: Request) -> Answer:
    """GET_NAMESRV_CONFIG."""
    return commands.success(body=f"listenPort={broker.settings.port}\norderMessageEnable=true\n".encode())


def wipe_write_permission(broker: Broker, request: Request) -> Answer:
    """WIPE_WRITE_PERM_OF_BROKER: send producers elsewhere until a restart, as a name server does."""
    return commands.success({"wipeTopicCount": str(_list_writable(broker, request, writable=False))})


def add_write_permission(broker: Broker, request: Request) -> Answer:
    """ADD_WRITE_PERM_OF_BROKER: list each topic with the permission in its configuration again."""
    return commands.success({"addTopicCount": str(_list_writable(broker, request, writable=True))})


def _list_writable(broker: Broker, request: Request, writable: bool) -> int:
    """Change the routes of the named broker; return their number."""
    if request.text("brokerName") != broker.settings.name:
        return 0
    broker.listed_writable = writable
    broker.topics.version += 1
    return len(broker.topics)


# Key-value pairs by namespace.


def put_value(broker: Broker, request: Request) -> Answer:
    """PUT_KV_CONFIG."""
    broker.kv_config.put(_key(request.text("namespace"), request.text("key")), request.text("value").encode())
    broker.topics.version += 1
    return broker.when_durable(commands.success())


def get_value(broker: Broker, request: Request) -> Answer:
    """GET_KV_CONFIG."""
    value = broker.kv_config.get(_key(request.text("namespace"), request.text("key")))
    if value is None:
        return refusal(
            ResponseCode.QUERY_NOT_FOUND, f"there is no key {request.text('key')} in {request.text('namespace')}"
        )
    return commands.success({"value": value.decode()})


def delete_value(broker: Broker, request: Request) -> Answer:
    """DELETE_KV_CONFIG."""
    broker.kv_config.delete(_key(request.text("namespace"), request.text("key")))
    broker.topics.version += 1
    return broker.when_durable(commands.success())


def values(broker: Broker, request: Request) -> Answer:
    """GET_KVLIST_BY_NAMESPACE."""
    prefix = _key(request.text("namespace"), "")
    table = {}
    for key, value in broker.kv_config.items(prefix):
        if not key.startswith(prefix):
            break
        table[key.removeprefix(prefix).decode()] = value.decode()
    if not table:
        return refusal(ResponseCode.QUERY_NOT_FOUND, f"there is no namespace {request.text('namespace')}")
    return commands.success(body=orjson.dumps({"table": table}))


def _key(namespace: str, key: str) -> bytes:
    return f"{namespace}\0{key}".encode()
