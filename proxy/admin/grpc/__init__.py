"""The Admin service of the v2 contract (`protos/apache/rocketmq/v2/admin.proto`), for RocketMQ's dashboard.

It has its own port (`admin.grpc`), with the roles, the audit and the TLS files of the HTTP API, over the same
operations. `service.py` lists every rpc with its handler and role.
"""
