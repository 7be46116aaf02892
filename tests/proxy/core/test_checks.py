import pytest

from proxy.core.checks import Tools, first_checks, well_formed
from proxy.core.context import Context
from proxy.settings.model import Settings
from remoting.codes import RequestCode
from remoting.errors import InvalidRequest, NotPermitted
from remoting.requests import REQUESTS, Action, RequestSpec
from remoting.signature import Credentials, sign
from tests.proxy.fakes import FakeChannel
from tests.proxy.messages import complete

TOOLS = [spec for spec in REQUESTS.values() if spec.tool]


def context(spec: RequestSpec) -> Context:
    return Context(FakeChannel(), complete(spec), spec, 0.0)


@pytest.mark.anyio
@pytest.mark.parametrize("spec", TOOLS, ids=lambda spec: spec.name)
async def test_tools_check_permits_the_configured_actions(spec: RequestSpec) -> None:
    Tools("all").check(context(spec))
    with pytest.raises(NotPermitted, match=f"^{spec.name} is not permitted here: the setting `tools` is 'none'$"):
        Tools("none").check(context(spec))
    if spec.action is Action.GET:
        Tools("read").check(context(spec))
    else:
        with pytest.raises(NotPermitted):
            Tools("read").check(context(spec))


@pytest.mark.anyio
async def test_tools_check_ignores_requests_of_clients() -> None:
    for spec in REQUESTS.values():
        if not spec.tool:
            Tools("none").check(context(spec))


@pytest.mark.anyio
@pytest.mark.parametrize("code", [RequestCode.AUTH_LIST_USER, RequestCode.SEND_MESSAGE_V2])
async def test_requests_signed_with_gantrys_own_credentials_are_refused(
    code: RequestCode, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(cluster={"access_key": "gantry", "secret_key": "secret"})
    own = first_checks(settings)[-1]
    for user, refused in (("gantry", True), ("alice", False), (None, False)):
        command = complete(REQUESTS[code])
        if user is not None:
            sign(command, Credentials(user, "secret"))
        sent = Context(FakeChannel(), command, REQUESTS[code], 0.0)
        if refused:
            for _ in range(3):
                with pytest.raises(NotPermitted, match="that of Gantry itself"):
                    own(sent)
        else:
            own(sent)
    assert caplog.text.count("cluster.access_key") == 1
    assert len(first_checks(Settings())) == len(first_checks(settings)) - 1
    embedded = settings.model_copy(update={"embedded": Settings(embedded={"directory": "/tmp/x"}).embedded})
    assert first_checks(embedded) == (well_formed,)


def test_all_rows_that_change_topics_groups_or_users_are_for_tools() -> None:
    changing = {spec.code for spec in TOOLS if spec.action is not Action.GET}
    assert changing == {17, 200, 207, 215, 216, 222, 309, *range(3001, 3009)}


def test_default_of_tools_depends_on_the_backend() -> None:
    assert Settings().permitted_tools == "read"
    assert Settings(embedded={"directory": "/tmp/x"}).permitted_tools == "all"
    assert Settings(embedded={"directory": "/tmp/x"}, tools="none").permitted_tools == "none"


@pytest.mark.anyio
@pytest.mark.parametrize(("permitted", "stacks", "allowed"), [("read", "false", True), ("read", "true", False)])
async def test_thread_stacks_need_permission_to_change(permitted: str, stacks: str, allowed: bool) -> None:
    command = complete(REQUESTS[RequestCode.GET_CONSUMER_RUNNING_INFO], jstackEnable=stacks)
    context = Context(FakeChannel(), command, REQUESTS[command.code], 0.0)
    if allowed:
        Tools(permitted).check(context)
    else:
        with pytest.raises(NotPermitted):
            Tools(permitted).check(context)


@pytest.mark.anyio
@pytest.mark.parametrize("code", [RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY])
async def test_a_client_cannot_add_a_body_to_a_request_to_another_client(code: RequestCode) -> None:
    command = complete(REQUESTS[code])
    Tools("all").check(Context(FakeChannel(), command, REQUESTS[code], 0.0))
    command.body = b"a message"
    with pytest.raises(InvalidRequest, match="has no body when it comes from a client"):
        Tools("all").check(Context(FakeChannel(), command, REQUESTS[code], 0.0))


@pytest.mark.anyio
async def test_poll_with_a_large_body_is_rejected() -> None:
    command = complete(REQUESTS[RequestCode.PULL_MESSAGE])
    command.body = b"x" * (64 * 1024 + 1)
    with pytest.raises(InvalidRequest, match="at most 65536"):
        well_formed(Context(FakeChannel(), command, REQUESTS[command.code], 0.0))


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["b", "a"])
async def test_names_are_limited_in_length(name: str) -> None:
    send = REQUESTS[310]
    well_formed(Context(FakeChannel(), complete(send, **{name: "x" * 262}), send, 0.0))
    with pytest.raises(InvalidRequest, match=f"the field {name} of 263 characters is over the limit of 262"):
        well_formed(Context(FakeChannel(), complete(send, **{name: "x" * 263}), send, 0.0))
