"""What routes have in common: the replica they are about, pages of lists, names in paths."""

from typing import Annotated

from fastapi import Depends, Path, Query, Request

from proxy.admin.replica import AdminReplica


async def _replica(request: Request) -> AdminReplica:
    replica: AdminReplica = request.app.state.replica
    return replica


Replica = Annotated[AdminReplica, Depends(_replica)]
Limit = Annotated[int, Query(ge=1, le=1000, description="items of a page")]
Cursor = Annotated[
    str | None, Query(pattern=r"^[A-Za-z0-9_-]{1,2000}$", description="`next` of the page before this one")
]
GroupName = Annotated[str, Path(pattern=r"^[%|a-zA-Z0-9_-]{1,255}$", examples=["orders-billing"])]
TopicName = Annotated[str, Path(pattern=r"^[%|a-zA-Z0-9_-]{1,255}$", examples=["orders"])]
TopicFilter = Annotated[str | None, Query(pattern=r"^[%|a-zA-Z0-9_-]{1,255}$", description="only this topic")]
ClientId = Annotated[str, Path(min_length=1, max_length=512, examples=["192.0.2.7@4711"])]
Filter = Annotated[str | None, Query(max_length=512)]
