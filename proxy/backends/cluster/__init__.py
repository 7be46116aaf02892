"""The cluster backend: a real RocketMQ cluster of name servers and brokers over TCP."""
