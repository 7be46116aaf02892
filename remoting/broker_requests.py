"""Requests that brokers and name servers serve, and those of them that only operators' tools send.

They are the requests of the proxy's table, those that replicas send, and those of tools such as mqadmin. The embedded
broker's own listener serves all of them; the clients' listeners serve tools if the setting `tools` allows it.
"""

from collections.abc import Mapping
from dataclasses import replace

from remoting.codes import RequestCode, ToolCode
from remoting.requests import INTERNAL_REQUESTS, REQUESTS, Action, RequestSpec, request_spec

# Requests by which another replica finds brokers and queries topics and groups for its clients. The other internal
# requests of a replica are those of its admin API.
_OF_REPLICAS = (
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
)
_ACTIONS = {
    ToolCode.UPDATE_AND_CREATE_TOPIC_LIST: Action.CREATE,
    ToolCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Action.CREATE,
    ToolCode.PUT_KV_CONFIG: Action.UPDATE,
    ToolCode.WIPE_WRITE_PERM_OF_BROKER: Action.UPDATE,
    ToolCode.ADD_WRITE_PERM_OF_BROKER: Action.UPDATE,
    ToolCode.CLONE_GROUP_OFFSET: Action.UPDATE,
    ToolCode.CLEAN_EXPIRED_CONSUMEQUEUE: Action.UPDATE,
    ToolCode.CLEAN_UNUSED_TOPIC: Action.UPDATE,
    ToolCode.DELETE_EXPIRED_COMMITLOG: Action.UPDATE,
    ToolCode.SET_MESSAGE_REQUEST_MODE: Action.UPDATE,
    ToolCode.DELETE_KV_CONFIG: Action.DELETE,
}
# Ext fields with a topic and a group.
_NAMES: dict[ToolCode, tuple[str | None, str | None]] = {
    ToolCode.GET_PRODUCER_CONNECTION_LIST: (None, "producerGroup"),
    ToolCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: ("topic", "group"),
    ToolCode.CLONE_GROUP_OFFSET: ("topic", "destGroup"),
    ToolCode.QUERY_CONSUME_QUEUE: ("topic", "consumerGroup"),
    ToolCode.QUERY_SUBSCRIPTION_BY_CONSUMER: ("topic", "group"),
}
_SOURCE_GROUPS: dict[ToolCode, str] = {ToolCode.CLONE_GROUP_OFFSET: "srcGroup"}


def _tool_row(code: ToolCode) -> RequestSpec:
    topic, group = _NAMES.get(code, (None, None))
    return RequestSpec(
        code,
        _ACTIONS.get(code, Action.GET),
        topic=topic,
        group=group,
        repeatable=True,
        tool=True,
        rip55=False,
        source_group=_SOURCE_GROUPS.get(code),
    )


# Rows of the served requests. A code of both tables has the proxy's row.
BROKER_REQUESTS: Mapping[int, RequestSpec] = {
    **{int(code): _tool_row(code) for code in ToolCode},
    **{code: replace(row, tool=True) for code, row in INTERNAL_REQUESTS.items()},
    **REQUESTS,
    **{int(code): replace(request_spec(code), tool=False) for code in _OF_REPLICAS},
}
# Rows of the requests of tools alone. mqadmin and the dashboard send them to the address that routes name, which is a
# clients' listener.
TOOL_REQUESTS: Mapping[int, RequestSpec] = {code: row for code, row in BROKER_REQUESTS.items() if code not in REQUESTS}
