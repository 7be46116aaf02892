"""Messages of a topic by key, newest first, from replies of brokers that hold a limited number of them."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from proxy.operations import broker_requests
from proxy.operations.broker_requests import SHORT_TIMEOUT
from proxy.operations.messages.message_lookup import MAX_FOUND, NOTHING, Found
from proxy.operations.messages.message_scan import place_of
from proxy.operations.paging import Place
from proxy.operations.services import AdminServices
from remoting import messages, properties
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError, ServiceUnavailable
from remoting.message_query import key_query

# Requests to each broker for one page.
_MAX_REQUESTS = 16
# Size of a reply that a broker may have cut, in bytes.
_LARGE_REPLY = 2**16
# Greater than the name of any broker.
_LAST = "~"


class SearchExhausted(Exception):
    """The requests of a page are used up. place: the place behind which the next page begins."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place


@dataclass(slots=True)
class _Search:
    """The search at one broker. end: store time in ms since 1970 up to which it has still to be searched."""

    broker: str
    end: int
    seen: set[str] = field(default_factory=set)
    repeated: int = 0
    finished: bool = False


async def by_key(services: AdminServices, topic: str, key: str, begin: int, end: int) -> AsyncGenerator[Found, None]:
    """Yield the messages with this key that were stored from `begin` to `end` (ms since 1970), the newest first.

    A broker returns the newest messages of a time range, at most 64: it is asked again with an earlier end. Its index
    may have the precision of a second; of more than 64 messages with one key in a second, it returns the newest.
    Raises RemotingError, SearchExhausted.
    """
    brokers = (await services.replica.core.backend.route(topic)).brokers
    searches = [_Search(broker, end) for broker in sorted(brokers)]
    pending: list[Found] = []
    for _ in range(_MAX_REQUESTS):
        replies = await asyncio.gather(
            *(_ask(services, search, topic, key, begin) for search in searches), return_exceptions=True
        )
        searches = _answered(searches, replies)
        for search, reply in zip(searches, (one for one in replies if not isinstance(one, BaseException)), strict=True):
            pending += _new(search, reply, topic, key, begin)
        searches = [search for search in searches if not search.finished]
        # Brokers may hold further messages that are as old as this.
        horizon = max((search.end for search in searches), default=-1)
        pending.sort(key=place_of, reverse=True)
        while pending and pending[0].message.store_timestamp > horizon:
            yield pending.pop(0)
        if not searches:
            return
    raise SearchExhausted(Place(horizon, 0, _LAST))


async def _ask(services: AdminServices, search: _Search, topic: str, key: str, begin: int) -> RemotingCommand | None:
    fields = key_query(topic, key, MAX_FOUND, begin, search.end)
    return await broker_requests.found(
        services.replica.core, search.broker, RequestCode.QUERY_MESSAGE, fields, NOTHING, timeout=SHORT_TIMEOUT
    )


def _answered(searches: list[_Search], replies: Sequence[RemotingCommand | BaseException | None]) -> list[_Search]:
    """Return the searches with a reply.

    Raises the error of a broker if none has replied, or if it has replied before and may have further messages.
    """
    errors = [reply for reply in replies if isinstance(reply, BaseException)]
    pairs = list(zip(searches, replies, strict=True))
    if not pairs:
        raise ServiceUnavailable("no broker is known")
    for search, reply in pairs:
        if isinstance(reply, BaseException) and (
            not isinstance(reply, RemotingError) or search.seen or len(errors) == len(pairs)
        ):
            raise reply
    return [search for search, reply in pairs if not isinstance(reply, BaseException)]


def _new(search: _Search, reply: RemotingCommand | None, topic: str, key: str, begin: int) -> list[Found]:
    """Return the messages that earlier replies did not have, and move the end of the search."""
    stored = [] if reply is None else messages.decode_messages(reply.body)
    found = [Found(search.broker, message) for message in stored]
    new = [one for one in found if one.offset_id not in search.seen]
    search.seen.update(one.offset_id for one in new)
    if reply is None or not (len(found) >= MAX_FOUND or len(reply.body) >= _LARGE_REPLY):
        search.finished = True
    else:
        search.end = min(search.end, *(one.message.store_timestamp for one in found))
        search.repeated = 0 if new else search.repeated + 1
        # A reply without new messages: the range has more of one time than a reply holds.
        search.end -= 0 if new else 1 if search.repeated == 1 else 1000
        search.finished = search.end < begin
    # Brokers look up by a hash.
    return [
        one for one in new if one.message.topic == topic and key in (one.message.get(properties.KEYS) or "").split()
    ]
