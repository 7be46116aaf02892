"""gRPC: the RocketMQ v2 service, translated to and from the core's remoting commands."""
