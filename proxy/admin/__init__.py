"""Operating a replica: its HTTP API, its health (also on the clients' port), what has happened of late.

`Admin` (service.py) is there from the start and light. What needs FastAPI and uvicorn (http_server.py, application.py,
routes/) is imported once the clients' port is served.
"""
