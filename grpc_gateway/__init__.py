"""The RocketMQ v2 gRPC service on top of remoting commands, and its gRPC transport."""
