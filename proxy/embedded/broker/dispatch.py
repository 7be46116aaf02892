"""The tables of request handlers, and the construction of a broker with them."""

from collections.abc import Callable

from proxy.core.backend import Push
from proxy.core.channel import Channel
from proxy.embedded.broker import (
    acking,
    assignment,
    client_management,
    client_queries,
    configuration,
    consumer_progress,
    end_transaction,
    lock_handlers,
    message_lookup,
    notification,
    popping,
    pulling,
    request_reply,
    routing,
    runtime_info,
    sending,
    users,
)
from proxy.embedded.broker.broker import Broker, Handler
from proxy.embedded.broker.settings import BrokerSettings
from proxy.embedded.store import Store
from remoting.codes import RequestCode, ToolCode

_C = RequestCode
_T = ToolCode

# Requests to a name server.
NAME_SERVER: dict[int, Handler] = {
    _C.GET_ROUTEINFO_BY_TOPIC: routing.route,
    _C.GET_BROKER_CLUSTER_INFO: routing.cluster,
    _T.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: routing.topics,
    _T.GET_TOPICS_BY_CLUSTER: routing.topics_of_cluster,
    _T.GET_SYSTEM_TOPIC_LIST_FROM_NS: routing.system_topics,
    _T.GET_UNIT_TOPIC_LIST: routing.unit_topics,
    _T.GET_HAS_UNIT_SUB_TOPIC_LIST: routing.unit_retry_topics,
    _T.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: routing.lone_unit_retry_topics,
    _C.DELETE_TOPIC_IN_NAMESRV: routing.delete_topic,
    _T.GET_NAMESRV_CONFIG: routing.config,
    _T.WIPE_WRITE_PERM_OF_BROKER: routing.wipe_write_permission,
    _T.ADD_WRITE_PERM_OF_BROKER: routing.add_write_permission,
    _T.PUT_KV_CONFIG: routing.put_value,
    _T.GET_KV_CONFIG: routing.get_value,
    _T.DELETE_KV_CONFIG: routing.delete_value,
    _T.GET_KVLIST_BY_NAMESPACE: routing.values,
}

# Requests to a broker.
BROKER: dict[int, Handler] = {
    _C.SEND_MESSAGE: sending.send,
    _C.SEND_MESSAGE_V2: sending.send,
    _C.SEND_BATCH_MESSAGE: sending.send,
    _C.CONSUMER_SEND_MSG_BACK: sending.send_back,
    _C.RECALL_MESSAGE: sending.recall,
    _C.SEND_REPLY_MESSAGE: request_reply.reply,
    _C.SEND_REPLY_MESSAGE_V2: request_reply.reply,
    _C.END_TRANSACTION: end_transaction.end,
    _C.PULL_MESSAGE: pulling.pull,
    _C.LITE_PULL_MESSAGE: pulling.pull,
    _C.QUERY_CONSUMER_OFFSET: message_lookup.query_offset,
    _C.UPDATE_CONSUMER_OFFSET: message_lookup.update_offset,
    _C.SEARCH_OFFSET_BY_TIMESTAMP: message_lookup.search,
    _C.GET_MAX_OFFSET: message_lookup.max_offset,
    _C.GET_MIN_OFFSET: message_lookup.min_offset,
    _C.GET_EARLIEST_MSG_STORETIME: message_lookup.earliest_store_time,
    _C.QUERY_MESSAGE: message_lookup.query,
    _C.VIEW_MESSAGE_BY_ID: message_lookup.view,
    _T.QUERY_CONSUME_QUEUE: message_lookup.query_queue,
    _C.POP_MESSAGE: popping.pop_messages,
    _C.ACK_MESSAGE: acking.ack,
    _C.BATCH_ACK_MESSAGE: acking.batch_ack,
    _C.CHANGE_MESSAGE_INVISIBLETIME: acking.change_invisible,
    _C.PEEK_MESSAGE: notification.peek,
    _C.NOTIFICATION: notification.notify,
    _C.POLLING_INFO: notification.polling_info,
    _C.HEART_BEAT: client_management.heartbeat,
    _C.UNREGISTER_CLIENT: client_management.unregister,
    _C.CHECK_CLIENT_CONFIG: client_management.check_config,
    _C.GET_CONSUMER_LIST_BY_GROUP: client_management.consumer_list,
    _C.GET_CONSUMER_CONNECTION_LIST: client_management.consumer_connections,
    _C.LOCK_BATCH_MQ: lock_handlers.lock,
    _C.UNLOCK_BATCH_MQ: lock_handlers.unlock,
    _C.QUERY_ASSIGNMENT: assignment.query,
    _C.GET_CONSUMER_RUNNING_INFO: client_queries.running_info,
    _C.CONSUME_MESSAGE_DIRECTLY: client_queries.consume_directly,
    _C.UPDATE_AND_CREATE_TOPIC: configuration.create_topic,
    _T.UPDATE_AND_CREATE_TOPIC_LIST: configuration.create_topics,
    _C.DELETE_TOPIC_IN_BROKER: configuration.delete_topic,
    _C.GET_TOPIC_CONFIG: configuration.topic_config,
    _C.GET_ALL_TOPIC_CONFIG: configuration.topic_configs,
    _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: configuration.create_group,
    _T.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: configuration.create_groups,
    _C.DELETE_SUBSCRIPTIONGROUP: configuration.delete_group,
    _C.GET_SUBSCRIPTIONGROUP_CONFIG: configuration.group_config,
    _C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: configuration.group_configs,
    _C.GET_TOPIC_STATS_INFO: consumer_progress.topic_stats,
    _C.GET_CONSUME_STATS: consumer_progress.consume_stats,
    _T.GET_BROKER_CONSUME_STATS: consumer_progress.broker_stats,
    _T.GET_ALL_CONSUMER_OFFSET: consumer_progress.offsets,
    _C.QUERY_TOPIC_CONSUME_BY_WHO: consumer_progress.groups_of_topic,
    _C.QUERY_TOPICS_BY_CONSUMER: consumer_progress.topics_of_group,
    _T.QUERY_SUBSCRIPTION_BY_CONSUMER: consumer_progress.subscription,
    _C.QUERY_CONSUME_TIME_SPAN: consumer_progress.time_spans,
    _T.CLONE_GROUP_OFFSET: consumer_progress.clone,
    _C.INVOKE_BROKER_TO_RESET_OFFSET: consumer_progress.reset,
    _T.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: client_queries.consumer_status,
    _T.GET_PRODUCER_CONNECTION_LIST: client_management.producer_connections,
    _T.GET_ALL_PRODUCER_INFO: client_management.producers,
    _T.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: routing.brokers_system_topics,
    _T.SET_MESSAGE_REQUEST_MODE: assignment.set_mode,
    _T.GET_ALL_MESSAGE_REQUEST_MODE: assignment.modes,
    _T.CLEAN_EXPIRED_CONSUMEQUEUE: runtime_info.clean,
    _T.CLEAN_UNUSED_TOPIC: runtime_info.clean,
    _T.DELETE_EXPIRED_COMMITLOG: runtime_info.clean,
    _T.GET_BROKER_RUNTIME_INFO: runtime_info.runtime,
    _T.GET_BROKER_HA_STATUS: runtime_info.replication,
    _C.GET_BROKER_CONFIG: runtime_info.config,
    _C.VIEW_BROKER_STATS_DATA: runtime_info.statistics,
    _C.AUTH_CREATE_USER: users.create_user,
    _C.AUTH_UPDATE_USER: users.update_user,
    _C.AUTH_DELETE_USER: users.delete_user,
    _C.AUTH_GET_USER: users.get_user,
    _C.AUTH_LIST_USER: users.list_users,
    _C.AUTH_CREATE_ACL: users.put_acl,
    _C.AUTH_UPDATE_ACL: users.put_acl,
    _C.AUTH_DELETE_ACL: users.delete_acl,
    _C.AUTH_GET_ACL: users.get_acl,
    _C.AUTH_LIST_ACL: users.list_acls,
}


def new_broker(
    settings: BrokerSettings,
    store: Store,
    push: Push,
    now: int,
    clock: Callable[[], float],
    close_silent: Callable[[Channel], None] = lambda channel: None,
) -> Broker:
    """Return a broker that serves all requests.

    `clock` returns seconds; `close_silent` closes the connection of a client without heartbeats.
    """
    return Broker(settings, store, push, NAME_SERVER | BROKER, (acking.revive,), clock, close_silent, now)
