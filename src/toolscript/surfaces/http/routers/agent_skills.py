"""Agent skills over HTTP: read their files. Searches and lists have them beside tools."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from toolscript.domain.agent_skills import MAIN_FILE, MAX_PATH
from toolscript.domain.servers import CallRelay
from toolscript.surfaces.callers import find_user
from toolscript.surfaces.http.bodies import ONE_LINE
from toolscript.surfaces.http.dependencies import CALL, CurrentApp, get_caller
from toolscript.surfaces.http.openapi import errors
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.json import agent_skills as responses

router = APIRouter(prefix="/agent-skills", tags=["agent skills"], dependencies=[CALL])


@router.get(
    "/{agent_skill_id:path}",
    summary="Read the SKILL.md of an agent skill, or another of its files",
    responses=errors(404, 409, 429, 502, 504),
)
async def read_agent_skill(
    agent_skill_id: Annotated[
        str,
        Path(
            description="`server__agent_skill:name`, as searches return it.",
            examples=["agent-skills__agent_skill:release-notes"],
        ),
    ],
    request: Request,
    app: CurrentApp,
    path: Annotated[
        str, Query(pattern=ONE_LINE, max_length=MAX_PATH, description="The file, relative to its folder.")
    ] = MAIN_FILE,
) -> JsonResponse[responses.AgentSkillResponse]:
    relay = CallRelay(user=find_user(request.scope["grant"]))
    found = await responses.read_agent_skill(app, agent_skill_id, path, relay=relay)
    app.tools.feedback.note_call(get_caller(request), found["agentSkillId"])
    return JsonResponse(found)
