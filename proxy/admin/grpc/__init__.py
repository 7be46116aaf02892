"""The Admin service of the v2 contract (`protos/apache/rocketmq/v2/admin.proto`), for RocketMQ's dashboard.

A port of its own (`admin.grpc`), with the roles, the audit and the TLS files of the HTTP API (`proxy.admin`), and over
the same code. `service.py` has every rpc with what serves it and who may call it.
"""
