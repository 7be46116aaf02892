"""The start of the admin API."""

import threading
from pathlib import Path

import pytest
from fastapi import FastAPI

from proxy.admin.http import application
from proxy.operations.services import AdminServices
from tests.proxy.admin.http.replicas import replica

pytestmark = pytest.mark.anyio


async def test_the_event_loop_does_not_import_the_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients are served meanwhile: the imports take as long as thousands of requests."""
    make, threads = application.make, []

    def recorded(services: AdminServices) -> FastAPI:
        threads.append(threading.current_thread())
        return make(services)

    monkeypatch.setattr(application, "make", recorded)
    async with replica(tmp_path) as running:
        await running.get("/livez")
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
