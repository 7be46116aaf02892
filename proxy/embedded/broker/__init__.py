"""Request handling of the embedded broker, over the store. Sans-io: driven by `handle` and `tick`."""
