"""JSON responses of the routes."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json
from starlette.responses import Response


class JsonResponse(Response):
    """A response that a route built itself with `surfaces/json`.

    Every route returns one, and declares `response_model` for the OpenAPI document only: FastAPI does not validate a
    response that is a `Response` already. Validating our own output again would cost more than writing it, and
    `tests/e2e/test_openapi.py` checks that both agree. NaN and infinity become null.
    """

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Writes the content as JSON."""
        return to_json(content, inf_nan_mode="null")
