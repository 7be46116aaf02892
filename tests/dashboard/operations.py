"""Operations of the official dashboard: the requests of its pages, in the order of a visit."""

import time
from dataclasses import dataclass, field
from typing import Any

from tests.proxy.admin.http.replicas import UNIQUE_ID

GROUP, PUSH_GROUP, PRODUCERS = "billing", "shipping", "shop"
READERS = "delivery"
CLIENT, GRPC_CLIENT = "192.0.2.7@4711", "grpc@1"
_DAY = 86_400_000


@dataclass(frozen=True)
class Operation:
    """A request of the dashboard. query: parameters; body: JSON."""

    method: str
    path: str
    query: dict[str, Any] = field(default_factory=dict)
    body: Any = None


@dataclass(frozen=True)
class Scene:
    """Names of the walk: addresses and cluster as the dashboard has them, a topic with messages, a traced message."""

    name_server: str
    broker: str
    proxy: str
    cluster: str
    topic: str
    message_id: str
    traced: str
    traced_id: str


def operations(scene: Scene) -> list[Operation]:
    """Return all operations, of which later ones delete the topic and the group of earlier ones."""
    return [*_of_cluster(scene), *_of_topics(scene), *_of_groups(scene), *_of_messages(scene), *_deletions()]


def _get(path: str, **query: Any) -> Operation:
    return Operation("GET", path, query)


def _post(path: str, body: Any) -> Operation:
    return Operation("POST", path, body=body)


def _of_cluster(scene: Scene) -> list[Operation]:
    return [
        _get("/ops/homePage.query"),
        _get("/cluster/list.query"),
        _get("/cluster/brokerConfig.query", brokerAddr=scene.broker),
        _get("/dashboard/broker.query", date=time.strftime("%Y-%m-%d")),
        _get("/dashboard/topicCurrent.query"),
        _get("/proxy/homePage.query"),
        _get("/monitor/consumerMonitorConfig.query"),
    ]


def _of_topics(scene: Scene) -> list[Operation]:
    topic = scene.topic
    made = {"topicName": "made", "clusterNameList": [scene.cluster], "brokerNameList": ["broker-a"]}
    sent = {"topic": topic, "key": "k", "tag": "T", "messageBody": "hello", "traceEnabled": False}
    return [
        _get("/topic/list.query", skipSysProcess="false", skipRetryAndDlq="false"),
        _get("/topic/list.queryTopicType"),
        _get("/topic/stats.query", topic=topic),
        _get("/topic/route.query", topic=topic),
        _get("/topic/queryConsumerByTopic.query", topic=topic),
        _get("/topic/queryTopicConsumerInfo.query", topic=topic),
        _get("/topic/examineTopicConfig.query", topic=topic),
        _post(
            "/topic/createOrUpdate.do",
            {**made, "writeQueueNums": 4, "readQueueNums": 4, "perm": 6, "order": False, "messageType": "NORMAL"},
        ),
        _post("/topic/sendTopicMessage.do", sent),
    ]


def _of_groups(scene: Scene) -> list[Operation]:
    made = {
        "groupName": "made-group",
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeBroadcastEnable": True,
        "retryQueueNums": 1,
        "retryMaxTimes": 16,
        "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1,
    }
    reset = {"consumerGroupList": [GROUP], "topic": scene.topic, "force": True}
    start = int(time.time() * 1000) - _DAY
    return [
        _get("/consumer/groupList.query", skipSysGroup="false"),
        _get("/consumer/group.query", consumerGroup=GROUP),
        _get("/consumer/queryTopicByConsumer.query", consumerGroup=GROUP, address=scene.broker),
        _get("/consumer/consumerConnection.query", consumerGroup=GROUP, address=scene.broker),
        _get("/consumer/consumerConnection.query", consumerGroup=PUSH_GROUP, address=scene.proxy),
        _get("/consumer/consumerRunningInfo.query", consumerGroup=GROUP, clientId=CLIENT, jstack="true"),
        _get("/consumer/examineSubscriptionGroupConfig.query", consumerGroup=GROUP),
        _get("/consumer/fetchBrokerNameList.query", consumerGroup=GROUP),
        _post(
            "/consumer/createOrUpdate.do",
            {"clusterNameList": [scene.cluster], "brokerNameList": ["broker-a"], "subscriptionGroupConfig": made},
        ),
        _post("/consumer/resetOffset.do", {**reset, "resetTime": start}),
        _post("/consumer/skipAccumulate.do", {**reset, "resetTime": -1}),
        _get("/producer/producerConnection.query", producerGroup=PRODUCERS, topic=scene.topic),
    ]


def _of_messages(scene: Scene) -> list[Operation]:
    now = int(time.time() * 1000)
    span = {"begin": now - _DAY, "end": now + 60_000}
    page = {**span, "pageNum": 1, "pageSize": 10, "taskId": ""}
    dead = f"%DLQ%{GROUP}"
    consumed = {
        "topic": scene.topic,
        "msgId": scene.message_id,
        "consumerGroup": GROUP,
        "clientId": CLIENT,
    }
    return [
        _get("/message/queryMessageByTopic.query", topic=scene.topic, **span),
        _post("/message/queryMessagePageByTopic.query", {"topic": scene.topic, **page}),
        _get("/message/queryMessageByTopicAndKey.query", topic=scene.topic, key="k1"),
        _get("/message/viewMessage.query", topic=scene.topic, msgId=UNIQUE_ID),
        Operation("POST", "/message/consumeMessageDirectly.do", query=consumed),
        _get("/messageTrace/viewMessage.query", topic=scene.topic, msgId=UNIQUE_ID),
        _post("/dlqMessage/queryDlqMessageByConsumerGroup.query", {"topic": dead, **page}),
        _post(
            "/dlqMessage/batchResendDlqMessage.do", [{"topicName": dead, "consumerGroup": GROUP, "msgId": UNIQUE_ID}]
        ),
    ]


def _deletions() -> list[Operation]:
    return [
        Operation("POST", "/topic/deleteTopic.do", {"topic": "made"}),
        _post("/consumer/deleteSubGroup.do", {"groupName": "made-group", "brokerNameList": ["broker-a"]}),
    ]
