"""The RocketMQ remoting wire, both directions: frames, header codecs, the request table, bodies, connections."""
