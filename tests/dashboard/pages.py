"""Visits of the official dashboard's pages: steps of a reader, and the requests and rows that follow."""

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from playwright.async_api import Locator, Page

from tests.cluster.client import BROKER
from tests.dashboard.operations import CLIENT, GROUP, GRPC_CLIENT, PRODUCERS, PUSH_GROUP, READERS, Scene
from tests.proxy.admin.http.replicas import UNIQUE_ID

Step = Callable[[Page], Awaitable[None]]


@dataclass(frozen=True)
class Visit:
    """A visit of a page.

    requests: paths that it must request, each with a text of the answer. rows: texts that one row must show together.
    clock: the browser's time at the beginning, if it is not the present.
    """

    name: str
    page: str
    requests: Mapping[str, str]
    rows: tuple[tuple[str, ...], ...]
    steps: tuple[Step, ...] = field(default=())
    clock: datetime | None = None


def visits(scene: Scene) -> list[Visit]:
    """Return the visits of all pages."""
    return [*_of_brokers(scene), *_of_topics(scene), *_of_groups(scene), *_of_messages(scene), *_of_dead_letters(scene)]


def home(scene: Scene) -> Visit:
    """Return the visit of the first page, whose figures the dashboard collects once a minute."""
    requests = {"/cluster/list.query": scene.broker, "/dashboard/topicCurrent.query": scene.topic}
    return Visit("home", "", requests, ((BROKER, scene.broker),))


def _press(label: str, row: str | None = None, inside: str = "tr") -> Step:
    async def press(page: Page) -> None:
        scope = page.locator("body") if row is None else page.locator(inside).filter(has_text=row).last
        buttons = scope.locator("button").filter(has_text=re.compile(rf"^\s*{label}\s*$"))
        await buttons.locator("visible=true").last.click()

    return press


def _item(page: Page, label: str) -> Locator:
    """Return the visible form item whose text begins with this label."""
    items = page.locator(".ant-form-item").filter(has_text=re.compile(rf"^\s*{label}"))
    return items.locator("visible=true").last


def _choose(label: str, option: str) -> Step:
    """Choose an option of the list with this label."""

    async def choose(page: Page) -> None:
        item = _item(page, label)
        await item.locator(".ant-select").click()
        await page.keyboard.type(option)
        options = page.locator(f'.ant-select-item-option[title="{option}"]')
        await options.locator("visible=true").last.click()

    return choose


def _fill(label: str, text: str, tag: str = "input") -> Step:
    async def fill(page: Page) -> None:
        item = _item(page, label)
        await item.locator(tag).fill(text)

    return fill


def _tab(label: str) -> Step:
    async def tab(page: Page) -> None:
        await page.get_by_role("tab", name=label, exact=True).click()

    return tab


async def _close_list(page: Page) -> None:
    """Close a list of several choices, which stays open over the button below it."""
    await page.locator(".ant-modal-title").locator("visible=true").last.click()


async def _until_tomorrow(page: Page) -> None:
    """Set the end of the time span; the page's own is the beginning of today."""
    end = _item(page, "End").locator("input")
    await end.fill(time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() + 86_400)))
    await end.press("Enter")


async def _enable_proxy(page: Page) -> None:
    await page.get_by_role("switch").click()
    await page.wait_for_load_state("networkidle")


def _of_brokers(scene: Scene) -> list[Visit]:
    row, requests = (BROKER, scene.broker), {"/cluster/list.query": scene.broker}
    config = {**requests, "/cluster/brokerConfig.query": "brokerRole"}
    return [
        Visit("name servers", "ops", {"/ops/homePage.query": scene.name_server}, ((scene.name_server,),)),
        Visit("proxies", "proxy", {"/proxy/homePage.query": scene.proxy}, ((scene.proxy,),)),
        Visit("cluster", "cluster", requests, ((*row, "V5_"),)),
        Visit("broker status", "cluster", requests, (row, ("brokerVersionDesc", "V5_")), (_press("Status", BROKER),)),
        Visit("broker config", "cluster", config, (row, ("brokerRole", "ASYNC_MASTER")), (_press("Config", BROKER),)),
    ]


def _of_topics(scene: Scene) -> list[Visit]:
    topic = scene.topic
    queue = f"topic={topic}, brokerName={BROKER}, queueId=0"

    def visit(name: str, path: str, answer: str, row: tuple[str, ...], *steps: Step) -> Visit:
        return Visit(name, "topic", {"/topic/list.queryTopicType": topic, path: answer}, ((topic,), row), steps)

    send = (
        _press("Send Massage", topic),
        _fill("Key", "from-the-page"),
        _fill("Message Body", "hello", "textarea"),
        _press("Commit"),
    )
    skip = (
        _press("Skip Message Accumulate", topic),
        _choose("SubscriptionGroup", GROUP),
        _close_list,
        _press("Commit"),
    )
    return [
        visit("topics", "/topic/list.queryTopicType", topic, (topic, "Router")),
        visit("topic status", "/topic/stats.query", queue, (queue,), _press("Status", topic)),
        visit("topic route", "/topic/route.query", scene.broker, (BROKER, scene.broker), _press("Router", topic)),
        visit("topic groups", "/topic/queryConsumerByTopic.query", GROUP, (GROUP,), _press("Consumer Manage", topic)),
        visit("topic config", "/topic/examineTopicConfig.query", topic, (BROKER,), _press("Topic Config", topic)),
        visit("send", "/topic/sendTopicMessage.do", "SEND_OK", ("SEND_OK",), *send),
        visit("skip", "/consumer/skipAccumulate.do", '"status":true', (GROUP,), *skip),
    ]


def _of_groups(scene: Scene) -> list[Visit]:
    topic = scene.topic

    def visit(name: str, path: str, answer: str, row: tuple[str, ...], *steps: Step) -> Visit:
        rows = ((GROUP, "CLUSTERING"), (PUSH_GROUP, "CLUSTERING"), row)
        return Visit(name, "consumer", {"/consumer/groupList.query": GROUP, path: answer}, rows, steps)

    connection = "/consumer/consumerConnection.query"
    settings = "/consumer/examineSubscriptionGroupConfig.query"
    producers = (_choose("TOPIC", topic), _fill("PRODUCER_GROUP", PRODUCERS), _press("SEARCH"))
    return [
        visit("groups", "/consumer/groupList.query", PUSH_GROUP, (GROUP, "V5_")),
        visit("group clients", connection, CLIENT, (CLIENT, "JAVA"), _press("CLIENT", GROUP)),
        visit("gRPC clients", connection, GRPC_CLIENT, (GRPC_CLIENT,), _enable_proxy, _press("CLIENT", PUSH_GROUP)),
        visit("consumption", "/consumer/queryTopicByConsumer.query", topic, (BROKER,), _press("CONSUME DETAIL", GROUP)),
        visit("group config", settings, GROUP, (BROKER,), _press("Config", GROUP)),
        visit("refresh", "/consumer/group.refresh", GROUP, (GROUP,), _press("REFRESH", GROUP)),
        Visit("producers", "producer", {"/producer/producerConnection.query": CLIENT}, ((CLIENT, "JAVA"),), producers),
    ]


def _of_messages(scene: Scene) -> list[Visit]:
    row = (UNIQUE_ID, "k1")
    of_topic, search = _choose("Topic", scene.topic), _press("Search")
    by_key = (_tab("Message Key"), of_topic, _fill("Key", "k1"), search)
    by_id = (_tab("Message ID"), of_topic, _fill("MessageId", UNIQUE_ID), search)
    detail = {"/message/viewMessage.query": GROUP}
    tracked = ((GROUP,), ("CONSUMED",))
    resend, resent = _press("Resend Message", GROUP, ".ant-descriptions"), "CR_SUCCESS"
    traced = (
        _tab("Message ID"),
        _choose("Topic", scene.traced),
        _fill("MessageId", scene.traced_id),
        search,
        _press("Message Trace Detail", scene.traced_id),
    )
    graph = {
        "/messageTrace/viewMessage.query": scene.traced_id,
        "/messageTrace/viewMessageTraceGraph.query": READERS,
    }
    return [
        Visit(
            "messages",
            "message",
            {"/message/queryMessagePageByTopic.query": UNIQUE_ID},
            (row,),
            (of_topic, _until_tomorrow, search),
        ),
        Visit("by key", "message", {"/message/queryMessageByTopicAndKey.query": UNIQUE_ID}, (row,), by_key),
        Visit("by id", "message", detail, tracked, by_id),
        Visit("resend", "message", {**detail, "/message/consumeMessageDirectly.do": resent}, tracked, (*by_id, resend)),
        Visit("trace", "messageTrace", graph, ((scene.traced_id,), (READERS,), ("success",)), traced),
    ]


def _of_dead_letters(scene: Scene) -> list[Visit]:
    row = (UNIQUE_ID, "k1")
    path = "/dlqMessage/queryDlqMessageByConsumerGroup.query"
    # The page searches from three hours ago until now, but sets both to the beginning of their day, and every time that
    # is entered to the beginning of the present day. Only in the first hours of the next day it finds today's messages.
    tomorrow = datetime.now().astimezone().replace(hour=1, minute=0, second=0) + timedelta(days=1)

    def visit(name: str, requests: Mapping[str, str], rows: tuple[tuple[str, ...], ...], *steps: Step) -> Visit:
        search = (_choose("Consumer", GROUP), _press("Search"))
        return Visit(name, "dlqMessage", {path: UNIQUE_ID, **requests}, (row, *rows), (*search, *steps), tomorrow)

    # The dashboard never shows the detail that it receives, and it sends "Resend Message" without the topic.
    # `operations.py` resends dead letters.
    detail = {"/message/viewMessage.query": UNIQUE_ID}
    return [
        visit("dead letters", {}, ()),
        visit("dead letter", detail, (), _press("Message Detail", UNIQUE_ID)),
    ]
