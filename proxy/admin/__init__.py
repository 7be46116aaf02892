"""Interfaces for operators: the HTTP API, the live page and the Admin gRPC service, over `proxy.operations`.

`http.admin_api` is imported at startup and is light. FastAPI, uvicorn and the routes are imported once clients are
served.
"""
