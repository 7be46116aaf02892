"""Traffic rules: access, rate limits, connection limits, maintenance, mirroring, faults, tenants and topic aliases.

`model` and `parsing` read the rules file and `evaluator` evaluates it for a request; these are pure and run without the
proxy. `engine` applies the rules at a replica.
"""
