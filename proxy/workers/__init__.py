"""Workers: `gantry serve --workers N`, N replicas on the same ports, one process each, and one that looks after them.

The kernel spreads connections over the workers (SO_REUSEPORT). They know of each other what replicas on different
hosts know. The parent serves nothing but their metrics, as one.
"""
