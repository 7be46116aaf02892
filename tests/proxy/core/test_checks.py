import pytest

from proxy.core.checks import Tools
from proxy.core.context import Context
from proxy.settings.model import Settings
from remoting.errors import NotPermitted
from remoting.requests import REQUESTS, Action, RequestSpec
from tests.proxy.fakes import FakeChannel
from tests.proxy.messages import complete

TOOLS = [spec for spec in REQUESTS.values() if spec.tool]


def context(spec: RequestSpec) -> Context:
    return Context(FakeChannel(), complete(spec), spec, 0.0)


@pytest.mark.anyio
@pytest.mark.parametrize("spec", TOOLS, ids=lambda spec: spec.name)
async def test_tools_check_permits_the_configured_actions(spec: RequestSpec) -> None:
    Tools("all")(context(spec))
    with pytest.raises(NotPermitted, match=f"^{spec.name} is not permitted here: the setting `tools` is 'none'$"):
        Tools("none")(context(spec))
    if spec.action is Action.GET:
        Tools("read")(context(spec))
    else:
        with pytest.raises(NotPermitted):
            Tools("read")(context(spec))


@pytest.mark.anyio
async def test_tools_check_ignores_requests_of_clients() -> None:
    for spec in REQUESTS.values():
        if not spec.tool:
            Tools("none")(context(spec))


def test_all_rows_that_change_topics_or_groups_are_for_tools() -> None:
    changing = {spec.code for spec in TOOLS if spec.action is not Action.GET}
    assert changing == {17, 200, 215, 216, 222}


def test_default_of_tools_depends_on_the_backend() -> None:
    assert Settings().permitted_tools == "read"
    assert Settings(embedded={"directory": "/tmp/x"}).permitted_tools == "all"
    assert Settings(embedded={"directory": "/tmp/x"}, tools="none").permitted_tools == "none"
