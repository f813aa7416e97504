"""What runs of one session keep for each other. Everything else ends with its run."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from toolscript.domain.errors import InvalidArguments, NotFound
from toolscript.domain.profiles import Profile, name_owner
from toolscript.domain.requests import RequestContext, current_request
from toolscript.ports.results import KEPT_SECONDS, ResultStore

MAX_NAME_LENGTH = 100


class SessionResults:
    """The named results of sessions: for one user and profile, for an hour, among the results that were cut."""

    def __init__(
        self,
        store: ResultStore,
        find_profile: Callable[[RequestContext], Profile | None],
        read_json: Callable[[str], Awaitable[Any]],
        write_json: Callable[[Any], Awaitable[str]],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`read_json` and `write_json` let others have their turn, also with the largest values. They raise
        ValueError."""
        self._store = store
        self._find_profile = find_profile
        self._read_json = read_json
        self._write_json = write_json
        self._clock = clock

    async def save(self, session: str | None, user: str, name: object, value: Any) -> None:
        """Keeps a value, instead of an earlier one of the same name. Raises InvalidArguments and Unavailable."""
        owner, now = name_owner(user, self._find_profile(current_request())), self._clock()
        handle = _build_handle(owner, session, name)
        try:
            content = await self._write_json(value)
        except ValueError as error:
            raise InvalidArguments(f"value: cannot be kept: {error}", details={"field": "value"}) from None
        await self._store.save(
            handle, owner, content.encode("utf-8", "replace"), now=now, expires_at=now + KEPT_SECONDS
        )

    async def load(self, session: str | None, user: str, name: object) -> Any:
        """The value that was kept. Raises NotFound, InvalidArguments and Unavailable."""
        owner = name_owner(user, self._find_profile(current_request()))
        content = await self._store.read(_build_handle(owner, session, name), owner, now=self._clock())
        if content is None:
            raise NotFound(
                f"the session {session!r} has no result {name!r}: results are kept for an hour, for the caller that "
                "saved them",
                details={"name": name},
            )
        try:
            return await self._read_json(content.decode())
        except ValueError as error:
            raise InvalidArguments(f"the result {name!r} cannot be read: {error}", details={"name": name}) from None


def _build_handle(owner: str, session: str | None, name: object) -> str:
    if not session:
        raise InvalidArguments("results are kept only in a session: run the program with `session`", details={})
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH:
        raise InvalidArguments(
            f"name: must be a string of 1 to {MAX_NAME_LENGTH} characters", details={"field": "name"}
        )
    digest = hashlib.sha256(json.dumps([owner, session, name]).encode()).hexdigest()
    return f"s_{digest[:30]}"  # stores keep 32 characters
