"""Consumer groups with and without members, by the survey of all groups."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.operations import broker_requests
from proxy.operations.groups import group_survey
from proxy.operations.groups.group_survey import GroupState, GroupStatus
from remoting.codes import RequestCode
from remoting.errors import RequestTimeout, ServiceUnavailable
from tests.cluster.client import Client, create_topic, queue_fields
from tests.proxy.admin.http.replicas import Replica, replica

pytestmark = pytest.mark.anyio


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[Replica]:
    """A replica whose groups are surveyed only on request."""
    async with replica(tmp_path, admin={"survey_interval": 0}) as running:
        yield running


async def _backlog(own: Replica, group: str, sent: int, consumed: int) -> str:
    """Create a topic with messages, of which the group has consumed some before it left; return the topic."""
    async with Client(own.address) as client:
        topic = await create_topic(own.address, "surveyed", queues=1)
        await client.heartbeat({group: [topic]})
        for number in range(sent):
            await client.send(topic, b"%d" % number)
        await client.get(
            RequestCode.UPDATE_CONSUMER_OFFSET, queue_fields(topic, consumerGroup=group, commitOffset=consumed)
        )
    return topic


async def test_group_without_members_is_listed_with_its_lag(own: Replica) -> None:
    topic = await _backlog(own, "left", sent=5, consumed=2)
    (group,) = (await own.get("/v1/consumer-groups", prefix="lef"))["items"]
    assert (group["name"], group["state"], group["members"], group["topics"]) == ("left", "offline", 0, [topic])
    assert (group["lag"], group["retry_backlog"], group["dead_letters"]) == (3, 0, 0)
    assert 0 <= group["lag_seconds"] < 60
    assert (await own.get("/v1/consumer-groups", prefix="lef", state="online"))["items"] == []
    assert (await own.get("/v1/consumer-groups", prefix="x"))["items"] == []
    one = await own.get("/v1/consumer-groups/left")
    assert (one["state"], one["members"], one["lag"]) == ("offline", [], 3)
    assert (await own.get("/v1/consumer-groups/left/lag"))["lag"] == 3
    assert (await own.get("/v1/consumer-groups/left/dead-letters"))["items"] == []


async def test_missing_group_is_not_found_everywhere(own: Replica) -> None:
    for path in ("", "/lag", "/queues", "/dead-letters"):
        assert (await own.read.get(f"/v1/consumer-groups/missing{path}")).status_code == 404


async def test_groups_of_brokers_and_proxies_are_not_listed(own: Replica) -> None:
    for topic in own.app.settings.sync.topics:
        await own.post("/v1/consumer-groups", {"name": f"CID_{topic}"})
    assert (await own.get("/v1/consumer-groups"))["items"] == []


async def test_lag_is_in_the_metrics(own: Replica) -> None:
    topic = await _backlog(own, "measured", sent=4, consumed=1)
    await own.app.admin_services.survey.refresh(0.0)
    metrics = (await own.read.get("/metrics")).text
    assert f'gantry_consumer_lag_messages{{consumer_group="measured",topic="{topic}"}} 3.0' in metrics
    assert 'gantry_consumer_group_members{consumer_group="measured"} 0.0' in metrics
    assert 'gantry_consumer_groups{state="offline"} 1.0' in metrics


async def test_member_that_consumes_nothing_is_stuck(own: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = await _backlog(own, "slow", sent=2, consumed=0)
    survey = own.app.admin_services.survey
    async with Client(own.address) as client:
        await client.heartbeat({"slow": [topic]})
        assert (await survey.look("slow")).state is GroupState.ONLINE
        monkeypatch.setattr(group_survey, "LAGGING_SECONDS", 0.0)
        assert (await survey.look("slow")).state is GroupState.LAGGING
        monkeypatch.setattr(group_survey, "STUCK_SECONDS", 0.0)
        assert (await survey.look("slow")).state is GroupState.STUCK
        fields = queue_fields(topic, consumerGroup="slow", commitOffset=2)
        await client.get(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        status = await survey.look("slow")
        assert (status.state, status.lag_messages) == (GroupState.ONLINE, 0)
        assert status.rate is not None
        assert status.rate > 0


async def test_rate_and_state_do_not_depend_on_the_number_of_readers(
    own: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers compare with the last survey, and leave it as it is."""
    topic = await _backlog(own, "watched", sent=9, consumed=1)
    survey = own.app.admin_services.survey
    await survey.refresh(0.0)
    async with Client(own.address) as client:
        await client.heartbeat({"watched": [topic]})
        fields = queue_fields(topic, consumerGroup="watched", commitOffset=5)
        await client.get(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        groups = await asyncio.gather(*(own.get("/v1/consumer-groups/watched") for _ in range(4)))
        assert all(group["rate"] > 0 for group in groups)
        status = (await survey.refresh(0.0))["watched"]
        assert status.rate
        # Offsets are committed every few seconds: just after a survey, its rate is the best known.
        assert (await own.get("/v1/consumer-groups/watched"))["rate"] == status.rate
        monkeypatch.setattr(group_survey, "_MIN_RATE_SECONDS", 0.0)
        assert (await own.get("/v1/consumer-groups/watched"))["rate"] == 0


async def test_broker_that_does_not_answer_makes_no_group_look_healthy(
    own: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await _backlog(own, "unseen", sent=5, consumed=2)
    survey = own.app.admin_services.survey
    await survey.refresh(0.0)
    ask = broker_requests.ask

    async def silence(core: Any, broker: str, code: int, *more: Any, **options: Any) -> Any:
        raise RequestTimeout(f"the broker {broker} does not answer")

    with monkeypatch.context() as patches:
        patches.setattr(broker_requests, "ask", silence)
        await survey.refresh(0.0)
        (group,) = (await own.get("/v1/consumer-groups", prefix="unseen"))["items"]
        assert group["unanswered"] == ["broker-a"]
        urgent = await own.get("/v1/consumer-groups", attention="true")
        assert (urgent["items"], urgent["unanswered"]) == ([], ["broker-a"]), "said once, not of every group"
        for value in ("state", "lag", "lag_seconds", "retry_backlog", "dead_letters", "rate"):
            assert group[value] is None
        assert (await own.read.get("/v1/consumer-groups/unseen")).status_code == 503
        metrics = (await own.read.get("/metrics")).text
        # No alert ends because a broker hangs.
        assert f'gantry_consumer_lag_messages{{consumer_group="unseen",topic="{topic}"}} 3.0' in metrics
        assert f'gantry_consumer_lag_seconds{{consumer_group="unseen",topic="{topic}"}}' in metrics
        for family in ("retry_backlog", "group_members"):
            assert f'gantry_consumer_{family}{{consumer_group="unseen"}} 0.0' in metrics
        assert 'gantry_dead_letters{consumer_group="unseen"} 0.0' in metrics
        assert 'gantry_consumer_groups{state="offline"} 1.0' in metrics
        assert 'gantry_consumer_survey_silent_brokers{broker="broker-a"} 1.0' in metrics
        patches.setattr(group_survey, "KEPT_SECONDS", 0.0)
        metrics = (await own.read.get("/metrics")).text
        assert 'consumer_group="unseen"' not in metrics
        assert (await survey.look("unseen")).unanswered == ["broker-a"]
    assert broker_requests.ask is ask
    await survey.refresh(0.0)
    assert "gantry_consumer_survey_silent_brokers{" not in (await own.read.get("/metrics")).text
    assert (await own.get("/v1/consumer-groups"))["unanswered"] == []
    one = await own.get("/v1/consumer-groups/unseen")
    assert (one["state"], one["lag"], one["rate"], one["unanswered"]) == ("offline", 3, 0, [])
    assert (
        f'gantry_consumer_lag_messages{{consumer_group="unseen",topic="{topic}"}} 3.0'
        in (await own.read.get("/metrics")).text
    )


async def test_groups_are_unavailable_until_a_broker_has_answered(
    own: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty list would mean that there are none."""

    async def silence(core: Any, broker: str, code: int, *more: Any, **options: Any) -> Any:
        raise RequestTimeout(f"the broker {broker} does not answer")

    async def nowhere() -> Any:
        raise ServiceUnavailable("no name server answers")

    ask, backend = (broker_requests, "ask", silence), (own.app.core.backend, "brokers", nowhere)
    for patch, reason in ((ask, "no answer from broker-a"), (backend, "no name server answers")):
        with monkeypatch.context() as patches:
            patches.setattr(*patch)
            answer = await own.read.get("/v1/consumer-groups")
            assert (answer.status_code, reason in answer.json()["detail"]) == (503, True)
    assert (await own.get("/v1/consumer-groups"))["items"] == []


async def test_rate_is_unknown_until_a_survey_has_a_reference(tmp_path: Path) -> None:
    """A rate over a moment would be 0, or far too high."""
    async with replica(tmp_path, admin={"survey_interval": 3600}) as surveyed:
        await _backlog(surveyed, "new", sent=3, consumed=1)
        for _ in range(2):
            groups = await asyncio.gather(*(surveyed.get("/v1/consumer-groups/new") for _ in range(4)))
            assert [group["rate"] for group in groups] == [None] * 4
            await surveyed.app.admin_services.survey.refresh(0.0)


async def test_failing_consumer_shows_retries_and_dead_letters(own: Replica) -> None:
    survey = own.app.admin_services.survey
    assert "\ngantry_new_dead_letters_total " not in (await own.read.get("/metrics")).text
    await survey.refresh(0.0)
    assert "gantry_new_dead_letters_total 0.0" in (await own.read.get("/metrics")).text
    async with Client(own.address) as client:
        topic = await create_topic(own.address, "failing", queues=1)
        config = {"groupName": "failing", "retryMaxTimes": 0, "consumeEnable": True}
        await client.get(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=orjson.dumps(config))
        await client.heartbeat({"failing": [topic]})
        await client.send(topic, b"poison")
        (message,) = await client.pull_all(1, topic, "failing")
        fields = {"offset": message.commit_log_offset, "group": "failing", "delayLevel": -1, "originTopic": topic}
        await client.get(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
    await survey.look("failing")
    assert survey.dead_letters.total == 0
    for _ in range(2):
        await survey.refresh(0.0)
        assert "gantry_new_dead_letters_total 1.0" in (await own.read.get("/metrics")).text
    (group,) = (await own.get("/v1/consumer-groups", prefix="failing"))["items"]
    assert group["dead_letters"] == 1


async def test_groups_without_members_and_with_retries_are_counted(own: Replica) -> None:
    """Beyond the limit of labels too."""
    survey = own.app.admin_services.survey
    await survey.refresh(0.0)
    for members, retries, count in ((0, 2, 2), (1, 2, 0), (0, 0, 0)):
        statuses = (GroupStatus(name, None, members, {}, retries, 0, 0, None, []) for name in ("one", "other"))
        survey.latest = {status.name: status for status in statuses}
        assert f"\ngantry_consumer_groups_unconsumed_retries {count}.0" in (await own.read.get("/metrics")).text


async def test_unknown_query_parameters_are_refused(own: Replica) -> None:
    answer = await own.read.get("/v1/consumer-groups", params={"foo": "1", "limit": "1"})
    assert answer.status_code == 422
    assert answer.json()["faults"] == [{"where": "query foo", "detail": "there is no such parameter"}]
    # A single worker has no number, and a drain of another one is not a drain of this one.
    assert (await own.write.post("/v1/drain?worker=7")).status_code == 422
    assert not own.app.core.drain.draining


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("GET", "/v1/consumer-groups?limit=1&limit=2", "limit"),
        ("GET", "/v1/version?replica=a&replica=b", "replica"),
        ("DELETE", "/v1/users/alice/policies?resource=Topic:a&action=Pub&action=Sub&resource=Topic:b", "resource"),
    ],
)
async def test_several_values_of_a_parameter_with_one_are_refused(
    own: Replica, method: str, path: str, name: str
) -> None:
    answer = await own.write.request(method, path)
    assert answer.status_code == 422
    assert (name in answer.text, "given more than once" in answer.text) == (True, True)
    assert "action" not in answer.text, "a list has several"


async def test_faults_of_a_reset_are_those_of_its_kind(own: Replica) -> None:
    answer = await own.write.post("/v1/consumer-groups/g/reset-offset", json={"topic": "t", "to": "sometime"})
    assert answer.status_code == 422
    assert [fault["where"] for fault in answer.json()["faults"]] == ["body to to"]
