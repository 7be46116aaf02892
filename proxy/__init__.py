"""The proxy: settings, core, backends, frontends, traffic rules, observability, operations, admin and tools."""
