"""Handlers of the request codes that need more than forwarding, one module per subject.

`HANDLERS` lists all of them; `proxy.core.forwarding.forward` handles every other code.
"""

from proxy.core import membership
from proxy.core.handlers import administration, groups, lite, locks, lookups, offsets, pop, route, tools, users
from proxy.core.messaging import Handling
from remoting.codes import RequestCode

HANDLERS: dict[int, Handling] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: route.route,
    RequestCode.GET_BROKER_CLUSTER_INFO: route.clusters,
    RequestCode.HEART_BEAT: membership.heartbeat,
    RequestCode.UNREGISTER_CLIENT: membership.unregister,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: groups.consumer_list,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: groups.consumer_connections,
    RequestCode.CHECK_CLIENT_CONFIG: groups.check_client_config,
    RequestCode.QUERY_ASSIGNMENT: groups.query_assignment,
    RequestCode.POP_MESSAGE: pop.pop_message,
    RequestCode.POP_LITE_MESSAGE: lite.pop_lite,
    RequestCode.LITE_SUBSCRIPTION_CTL: lite.subscribe,
    RequestCode.LOCK_BATCH_MQ: locks.lock,
    RequestCode.UNLOCK_BATCH_MQ: locks.unlock,
    RequestCode.QUERY_CONSUMER_OFFSET: offsets.query_consumer_offset,
    RequestCode.QUERY_MESSAGE: lookups.query_message,
    RequestCode.GET_CONSUMER_RUNNING_INFO: tools.query_client,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: tools.query_client,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: tools.forget_topic,
    **dict.fromkeys(administration.CHANGES, administration.change),
    **dict.fromkeys(administration.QUERIES, administration.query),
    **dict.fromkeys(administration.TABLES, administration.merge),
    **dict.fromkeys(users.READS, users.query),
    **dict.fromkeys(users.WRITES, users.change),
}
