"""The product: the messaging core, its checks and observers, backends, configuration, wiring."""
