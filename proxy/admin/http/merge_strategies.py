"""Ways in which several workers serve a route; `aggregation_table` maps routes to them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from proxy.admin.http import merging
from proxy.admin.http.guard import Receive, Send
from proxy.admin.http.merging import Data, Join, Told
from proxy.admin.http.problems import Refused
from proxy.admin.http.scatter_gather import Gathered, Inquiry, found, without
from proxy.admin.http.worker_request import Question, Reply
from proxy.operations import paging
from proxy.operations.paging import BadCursor, Order

# Seconds that another worker has for what it knows itself, and for what it asks brokers or clients.
QUICK = 5.0
ASKING = 15.0
# A hundred dead letters are sent one after the other, each with some questions to brokers.
LONG = 120.0

_BOOLEAN = TypeAdapter(bool)
# Items of a page, where a list is needed whole.
_WHOLE = 1_000


@dataclass(frozen=True, slots=True)
class Anyone:
    """It is the same everywhere: one answers, this one unless another is named."""

    patience: float = ASKING

    async def __call__(self, inquiry: Inquiry, receive: Receive, send: Send) -> Reply:
        return await inquiry.one(inquiry.here if inquiry.named is None else inquiry.named, self.patience)


@dataclass(frozen=True, slots=True)
class Everyone:
    """All answer, or do it, and `join` makes one of it. aside: what it needs besides; once: what one of them tells."""

    join: Join
    aside: tuple[str, ...] = ()
    patience: float = QUICK
    once: tuple[str, ...] = ()

    async def __call__(self, inquiry: Inquiry, receive: Receive, send: Send) -> Reply:
        one = inquiry.here if inquiry.named is None else inquiry.named

        def question(worker: int) -> Question:
            return replace(inquiry.question, aside=self.aside + self.once if worker == one else self.aside)

        return inquiry.join(await inquiry.each(self.patience, question), self.join)


@dataclass(frozen=True, slots=True)
class Numbered:
    """It is about one worker's connection, which is named as in `1:17`, or by its own number and `?worker=1`."""

    async def __call__(self, inquiry: Inquiry, receive: Receive, send: Send) -> Reply:
        text = inquiry.path["number"]
        worker, colon, number = text.rpartition(":")
        if not colon:
            if inquiry.named is None:
                raise Refused(404, f"no connection has the number {text}: there are several workers, as in 0:{text}")
            holder = inquiry.named
        else:
            holder = found(worker, inquiry.all)
        if inquiry.named not in (None, holder):
            raise Refused(404, f"connection {text} is not worker {inquiry.named}'s")
        path = inquiry.question.path.removesuffix(text) + number
        reply = await inquiry.one(holder, QUICK, replace(inquiry.question, path=path))
        if not reply.ok or not reply.body:
            return reply
        return inquiry.join(Gathered([reply], []), merging.own)


@dataclass(frozen=True, slots=True)
class Holder:
    """One does it: the first that has what it is about, as its answer at `path` says, or else any."""

    path: str
    has: Callable[[Data], bool]
    patience: float

    async def __call__(self, inquiry: Inquiry, receive: Receive, send: Send) -> Reply:
        if inquiry.named is not None:
            return await inquiry.one(inquiry.named, self.patience)
        looked = await inquiry.each(QUICK, lambda _: Question("GET", self.path.format(**inquiry.path)))
        holders = [reply.worker for reply in looked.replies if reply.ok and self.has(reply.data)]
        return await inquiry.one(holders[0] if holders else inquiry.here, self.patience)


@dataclass(frozen=True, slots=True)
class Pages:
    """A list in pages of things of which each is one worker's. sort: by what, unless the request says."""

    sort: str

    async def __call__(self, inquiry: Inquiry, receive: Receive, send: Send) -> Reply:
        order = Order.parse(inquiry.query.get("sort", self.sort))

        def question(worker: int) -> Question:
            asked = replace(inquiry.question, aside=("places",))
            cursor = inquiry.query.get("cursor")
            return asked if cursor is None else without(asked, cursor=paging.of_worker(cursor, order, worker))

        def join(told: Sequence[Told], query: Mapping[str, str]) -> Data:
            rows = [
                ((value, each.worker, number), merging.placed(each.worker, item))
                for each in told
                for (value, number), item in zip(each.aside["places"], each.data["items"], strict=True)
            ]
            rows.sort(key=lambda row: row[0], reverse=order.descending)
            limit = merging.limit(query)
            more = len(rows) > limit or any(each.data["next"] is not None for each in told)
            rows, last = rows[:limit], None
            if more and rows:
                value, worker, number = rows[-1][0]
                last = paging.write((value, paging.joined(worker, number)), order)
            items = [item for _, item in rows]
            return {"items": items, "total": sum(each.data["total"] for each in told), "next": last}

        try:
            return inquiry.join(await inquiry.each(QUICK, question), join)
        except BadCursor:
            raise _no_page() from None


@dataclass(frozen=True, slots=True)
class Names:
    """A list in pages of what several workers may know of by the same name.

    name: the field; one: makes one of what they say of it. fits: whether it is wanted after all: then the list is
    needed whole, and asked for without the query's filters.
    """

    name: str
    one: Join
    aside: tuple[str, ...] = ()
    fits: Callable[[Data, Mapping[str, str]], bool] | None = None
    filters: tuple[str, ...] = ()

    async def __call__(self, inquiry: Inquiry, receive: Receive, send: Send) -> Reply:
        if self.fits is not None and any(name in inquiry.query for name in self.filters):
            return await self._whole(inquiry)
        question = replace(inquiry.question, aside=("ids", *self.aside))
        return inquiry.join(await inquiry.each(QUICK, lambda _: question), self._page)

    def _page(self, told: Sequence[Told], query: Mapping[str, str]) -> Data:
        items = self._items(told, query)
        limit = merging.limit(query)
        more = len(items) > limit or any(each.data["next"] is not None for each in told)
        items = items[:limit]
        last = paging.write(("", items[-1][self.name]), self._order) if more and items else None
        return {"items": items, "total": len({name for each in told for name in each.aside["ids"]}), "next": last}

    @property
    def _order(self) -> Order:
        return Order(self.name, False)

    def _items(self, told: Sequence[Told], query: Mapping[str, str]) -> list[Data]:
        """One for each name, in their order."""
        same: dict[str, list[Told]] = {}
        for each in told:
            asides = each.aside.get("members") or [{}] * len(each.data["items"])
            for item, besides in zip(each.data["items"], asides, strict=True):
                same.setdefault(item[self.name], []).append(Told(each.worker, item, besides))
        return [self.one(parts, query) for _, parts in sorted(same.items())]

    async def _whole(self, inquiry: Inquiry) -> Reply:
        # As it is, so that a request that is not as described is refused.
        checked = await inquiry.one(inquiry.here if inquiry.named is None else inquiry.named, QUICK)
        if not checked.ok:
            return checked
        asked = without(replace(inquiry.question, aside=self.aside), "cursor", *self.filters, limit=str(_WHOLE))
        told: list[Told] = []
        missing: set[int] = set()
        cursors: dict[int, str | None] = dict.fromkeys(inquiry.workers)
        while cursors:
            questions = {
                worker: asked if cursor is None else without(asked, cursor=cursor) for worker, cursor in cursors.items()
            }
            page = await inquiry.each(QUICK, questions.__getitem__, list(questions))
            missing.update(page.missing, (reply.worker for reply in page.replies if not reply.ok))
            served = [Told(reply.worker, reply.data, reply.aside) for reply in page.replies if reply.ok]
            told += served
            cursors = {each.worker: each.data["next"] for each in served if each.data["next"] is not None}
        wanted, query, fits = self._items(told, inquiry.query), inquiry.query, self.fits
        assert fits is not None
        cut = await paging.cut(
            wanted,
            lambda item: fits(item, query),
            lambda item: ("", str(item[self.name])),
            self._order,
            merging.limit(query),
            query.get("cursor"),
        )
        return inquiry.made({"items": cut.items, "total": cut.total, "next": cut.next}, sorted(missing))


def group_fits(group: Data, query: Mapping[str, str]) -> bool:
    """Whether a consumer group is one of those that a query asks for."""
    topic, skewed = query.get("topic"), query.get("skewed")
    return (topic is None or topic in group["topics"]) and (
        skewed is None or _BOOLEAN.validate_python(skewed) == group["skewed"]
    )


def _no_page() -> Refused:
    return Refused(404, "this list has no page with that cursor")
