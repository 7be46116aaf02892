"""Routes between replicas. They are not part of the API: replicas of one version use them."""

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from proxy.admin.http.problems import Refused
from proxy.admin.http.routes.common import INVALID_REQUEST, Operations, Services
from proxy.operations.peers import MISSING_HEADER, PATH

router = APIRouter(include_in_schema=False)


@router.get(PATH)
async def introduce(services: Services, _: Operations) -> Response:
    """Return the name of this replica, and the id of its process."""
    content = orjson.dumps({"replica": services.peers.name, "instance": services.peers.instance})
    return Response(content, media_type="application/json")


@router.get(PATH + "/{name}")
async def run(request: Request, services: Services, operations: Operations, name: str) -> Response:
    """Return this replica's snapshot of an operation, and the numbers of the workers that did not reply."""
    operation = next((found for found in services.workers.operations if found.name == name), None)
    if operation is None or operation.writes or not operation.merged:
        raise Refused(404, f"there is no operation {name[:80]}")
    try:
        parameters = operation.parameters.validate_json(request.query_params.get("parameters", ""))
    except ValidationError:
        raise Refused(422, INVALID_REQUEST) from None
    merged = await operations.services.workers.gather(operation, parameters)
    content = operation.snapshot.dump_json(merged.value, exclude_unset=True)
    headers = {MISSING_HEADER: ",".join(map(str, merged.missing))} if merged.missing else None
    return Response(content, headers=headers, media_type="application/json")
