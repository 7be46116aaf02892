"""Workers: `gantry serve --workers N`, N replicas on the same ports, one process each, and one that looks after them.

The kernel spreads connections over the workers (SO_REUSEPORT). Of clients they know what replicas on different hosts
know of each other's; to operators any of them speaks for all. The parent serves nothing but their metrics, as one, and
passes on what they ask each other.
"""
