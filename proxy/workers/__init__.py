"""Workers: `gantry serve --workers N` runs N replicas on the same ports, one process each, and a supervisor.

The kernel distributes connections among the workers (SO_REUSEPORT). Workers share client memberships as replicas on
different hosts do. Each worker's admin API covers all workers. The supervisor serves no clients: it restarts workers,
aggregates their metrics and forwards the frames of their RPCs.
"""
