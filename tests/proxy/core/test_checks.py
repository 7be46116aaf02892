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
async def test_what_tools_may_do(spec: RequestSpec) -> None:
    Tools("all")(context(spec))
    with pytest.raises(NotPermitted, match=f"^{spec.name} is not permitted here: the setting `tools` is 'none'$"):
        Tools("none")(context(spec))
    if spec.action is Action.GET:
        Tools("read")(context(spec))
    else:
        with pytest.raises(NotPermitted):
            Tools("read")(context(spec))


@pytest.mark.anyio
async def test_clients_are_not_concerned() -> None:
    for spec in REQUESTS.values():
        if not spec.tool:
            Tools("none")(context(spec))


def test_some_rows_are_for_tools_and_all_that_change_topics_and_groups() -> None:
    changing = {spec.code for spec in TOOLS if spec.action is not Action.GET}
    assert changing == {17, 200, 215, 216, 222}


def test_the_default_is_the_backends() -> None:
    assert Settings().permitted_tools == "read"
    assert Settings(embedded={"directory": "/tmp/x"}).permitted_tools == "all"
    assert Settings(embedded={"directory": "/tmp/x"}, tools="none").permitted_tools == "none"
