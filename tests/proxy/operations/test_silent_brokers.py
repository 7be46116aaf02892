"""The survey of consumer groups in a cluster in which a broker does not answer."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from proxy.operations import broker_requests
from proxy.operations.groups import group_metrics, group_survey
from proxy.operations.groups.group_survey import GroupState, GroupStatus, GroupSurvey, TopicLag
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RequestTimeout
from tests.proxy.backends.cluster.servers import Answer, running
from tests.proxy.replica import serving

pytestmark = pytest.mark.anyio

GROUPS = [f"group-{number:02}" for number in range(30)]
TOPIC = "orders"


def _broker(name: str, ends: Iterator[int]) -> Answer:
    """Return a broker with 30 groups that have consumed nothing of a queue, which ends at the next of `ends`."""

    def answer(command: RemotingCommand) -> RemotingCommand:
        match command.code:
            case RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
                body = orjson.dumps({"subscriptionGroupTable": {group: {} for group in GROUPS}})
            case RequestCode.GET_CONSUME_STATS:
                queue = orjson.dumps({"topic": TOPIC, "brokerName": name, "queueId": 0})
                body = b'{"offsetTable":{%b:{"brokerOffset":%d,"consumerOffset":0}}}' % (queue, next(ends))
            case RequestCode.GET_CONSUMER_LIST_BY_GROUP:
                body = orjson.dumps({"consumerIdList": ["member"]})
            case RequestCode.PULL_MESSAGE:
                return commands.response(ResponseCode.PULL_NOT_FOUND)
            case _:
                body = b"{}"
        return commands.success(body=body)

    return answer


def _ends(*ends: int) -> Iterator[int]:
    for end in ends:
        yield from [end] * len(GROUPS)


def _lag(survey: GroupSurvey) -> dict[Any, Any]:
    return dict(dict(group_metrics.read(survey))[group_metrics.LAG])


@pytest.mark.parametrize("surveyed", [True, False], ids=["after a survey of all", "since the start"])
async def test_group_becomes_stuck_while_a_broker_hangs(monkeypatch: pytest.MonkeyPatch, surveyed: bool) -> None:
    """Its queue at the broker that answers has waiting messages, and none is consumed."""
    ask, hanging = broker_requests.ask, False

    async def hang(core: Any, broker: str, code: RequestCode, *more: Any, **options: Any) -> Any:
        if hanging and broker == "broker-b" and code == RequestCode.GET_CONSUME_STATS:
            raise RequestTimeout(f"the broker {broker} does not answer")
        return await ask(core, broker, code, *more, **options)

    monkeypatch.setattr(broker_requests, "ask", hang)
    async with running() as cluster:
        await cluster.broker("broker-a", answer=_broker("broker-a", _ends(2, 2, 2)))
        await cluster.broker("broker-b", answer=_broker("broker-b", _ends(0)))
        async with serving(cluster) as app:
            survey = GroupSurvey(app.admin_services.replica, 0.0, 1000)
            if surveyed:
                await survey.refresh(0.0)
            hanging = True
            status = (await survey.refresh(0.0))[GROUPS[0]]
            assert (status.unanswered, status.state) == (["broker-b"], None)
            monkeypatch.setattr(group_survey, "STUCK_SECONDS", 0.0)
            assert (await survey.refresh(0.0))[GROUPS[0]].state is GroupState.STUCK


async def test_hung_broker_ends_no_lag_and_is_asked_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers the requests for its tables, and then no other."""
    ask = broker_requests.ask
    asked: Counter[str] = Counter()

    async def hang(core: Any, broker: str, code: RequestCode, *more: Any, **options: Any) -> Any:
        if broker == "broker-b" and code == RequestCode.GET_CONSUME_STATS:
            asked[broker] += 1
            raise RequestTimeout(f"the broker {broker} does not answer")
        return await ask(core, broker, code, *more, **options)

    async with running() as cluster:
        await cluster.broker("broker-a", answer=_broker("broker-a", _ends(2, 3, 9, 9)))
        await cluster.broker("broker-b", answer=_broker("broker-b", _ends(5, 5)))
        async with serving(cluster) as app:
            survey = GroupSurvey(app.admin_services.replica, 0.0, 1000)
            await survey.refresh(0.0)
            assert _lag(survey) == {(group, TOPIC): 7 for group in GROUPS}
            with monkeypatch.context() as patches:
                patches.setattr(broker_requests, "ask", hang)
                # The lag at the broker that answers is lower than the last known one, then higher.
                for lag in (7, 9):
                    asked.clear()
                    status = (await survey.refresh(0.0))[GROUPS[-1]]
                    assert (status.unanswered, status.lag_messages) == (["broker-b"], None)
                    assert _lag(survey) == {(group, TOPIC): lag for group in GROUPS}
                    assert survey.silent == ["broker-b"]
                    assert 3 <= asked["broker-b"] < len(GROUPS)
            await survey.refresh(0.0)
            assert _lag(survey) == {(group, TOPIC): 14 for group in GROUPS}
            assert survey.silent == []


@pytest.mark.parametrize(
    ("lag", "retries", "dead", "urgency"),
    [({}, 0, 0, 0), ({TOPIC: TopicLag(3, 1.0)}, 0, 0, 1), ({}, 2, 0, 1), ({}, 0, 1, 1)],
)
def test_group_needs_attention_by_what_is_known_of_it(
    lag: dict[str, TopicLag], retries: int, dead: int, urgency: int
) -> None:
    """A broker that does not answer would be a reason for every group."""
    status = GroupStatus("g", None, 0, lag, retries, dead, 0, None, ["broker-b"])
    assert status.urgency == urgency
    assert (status.lag_messages, status.retry_backlog, status.dead_letters) == (None, None, None)


@pytest.mark.parametrize(
    ("retries", "rate", "failing"),
    [(10, 0.0, False), (11, 0.0, True), (600, 10.0, False), (601, 10.0, True), (600, None, False)],
)
def test_group_with_more_retries_than_it_consumes_in_a_minute_needs_attention(
    retries: int, rate: float | None, failing: bool
) -> None:
    """Its first dead letter comes hours after the first failure."""
    status = GroupStatus("g", GroupState.ONLINE, 1, {}, retries, 0, 0, rate, [])
    assert (status.failing, status.urgency) == (failing, int(failing))
