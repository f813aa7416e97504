"""Cuts results that would fill an agent's context, and keeps the whole for `read_result`.

A token counts as four bytes of UTF-8: that is the average of English and JSON, and letters of other scripts take more.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from toolscript.domain.errors import Invalid, InvalidArguments, NotFound, ToolscriptError, Unavailable
from toolscript.domain.limits import current_limits
from toolscript.domain.profiles import Profile, name_owner
from toolscript.domain.requests import RequestContext, current_request
from toolscript.domain.servers import META_KEY
from toolscript.ports.models import Embedder
from toolscript.ports.results import KEPT_SECONDS, ResultStore
from toolscript.retrieval.text.json_chunks import TextChunk
from toolscript.retrieval.text.json_paths import Path, describe_shape, format_path, parse_path
from toolscript.retrieval.text.pages import count_bytes, find_cut, split_text
from toolscript.services.results.document import (
    ResultDocument,
    is_larger,
    replace_large_blobs,
    split_result,
    unpack_document,
)
from toolscript.services.results.search import ChunkFusion, rank_by_words
from toolscript.services.tools.token_costs import CHARACTERS_PER_TOKEN, estimate_tokens

DEFAULT_TOKENS = 10_000
MIN_TOKENS, MAX_TOKENS = 100, 900_000
MAX_KEPT_BYTES = 32 * 2**20
# Of the budget, the beginning of a cut result takes a quarter, the end of an error an eighth, the shape a sixteenth.
_BEGINNING, _ERROR_END, _SHAPE = 4, 8, 16
MAX_HITS = 10
MAX_PAGE = 1_000_000
# A result of 5 MB takes a core for half a second.
MAX_CONCURRENT = 2

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ResultPage:
    """A page of a result, or of the value at a path."""

    text: str
    page: int
    pages: int


@dataclass(frozen=True, slots=True)
class ResultHit:
    """A part of a result that fits a query, and where to read on: a path, a page, or a page of the value at a path."""

    text: str
    path: str | None = None
    page: int | None = None


class LargeResults:
    """Cuts results above a budget of tokens, and reads what was kept of them."""

    def __init__(
        self,
        store: ResultStore,
        embedder: Embedder | None,
        max_tokens: int,
        find_profile: Callable[[RequestContext], Profile | None],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`max_tokens` of 0 cuts nothing. `find_profile` returns the profile of the current request."""
        self._store = store
        self._search = ChunkFusion(embedder)
        self._max_tokens = max_tokens
        self._find_profile = find_profile
        self._clock = clock
        self._turns = asyncio.Semaphore(MAX_CONCURRENT)

    async def cut(self, result: Mapping[str, Any], user: str, max_tokens: int | None = None) -> Mapping[str, Any]:
        """The result, or its beginning if it is larger than the budget (None: the budget of the settings): then the
        whole is kept for this user and the profile of the request. Never fails because of the store: the text says
        so."""
        tokens = self._max_tokens if max_tokens is None else max_tokens
        if not tokens or result.get("resultType") == "input_required":
            return result
        max_bytes = max(tokens, MIN_TOKENS) * CHARACTERS_PER_TOKEN
        result = replace_large_blobs(result, max_bytes)
        if not is_larger(result, max_bytes):
            return result
        document, passed, place = await self._work(split_result, result)
        size = count_bytes(document.text)
        if size <= max_bytes:
            return result
        handle, reason = await self._keep(document, user)
        is_error = result.get("isError") is True
        cut = await self._work(self._describe_cut, document, handle, reason, max_bytes, is_error)
        about = {"handle": handle, "tokens": estimate_tokens(size), "bytes": size}
        kept = {key: value for key, value in result.items() if key != "structuredContent"}
        content = [*passed[:place], {"type": "text", "text": cut}, *passed[place:]]
        return {**kept, "content": content, "_meta": {**(result.get("_meta") or {}), META_KEY: about}}

    async def read(
        self, handle: str, user: str, *, query: str | None = None, path: str | None = None, page: int | None = None
    ) -> ResultPage | list[ResultHit]:
        """A page, or with a query the parts that fit. Raises InvalidArguments for a query with a page, and what
        `read_page` raises."""
        if query and page:
            raise InvalidArguments(
                "page: cannot be combined with query, which finds the pages: leave one of them out",
                details={"field": "page"},
            )
        if query:
            return await self.search(handle, user, query, path=path)
        return await self.read_page(handle, user, path=path, page=page)

    async def read_page(
        self, handle: str, user: str, *, path: str | None = None, page: int | None = None, max_tokens: int | None = None
    ) -> ResultPage:
        """A page, by default the first, of the whole result or of the value at a path.

        Raises NotFound for a handle that is unknown, expired or of another caller, and for a path that does not exist;
        Invalid for a page that does not exist; Unavailable when the store fails.
        """
        document = await self._load(handle, user, path)
        pages = await self._work(self._split, document.text, max_tokens)
        number = page or 1
        if not 1 <= number <= len(pages):
            raise Invalid(f"page: must be a whole number from 1 to {len(pages)}", details={"field": "page"})
        start, end = pages[number - 1]
        return ResultPage(document.text[start:end], number, len(pages))

    async def search(
        self, handle: str, user: str, query: str, *, path: str | None = None, max_tokens: int | None = None
    ) -> list[ResultHit]:
        """The parts of a result, or of the value at a path, that fit a query, best first, together within the budget.
        Raises what `read_page` raises."""
        document = await self._load(handle, user, path)
        chunks, by_words = await self._work(rank_by_words, document, query)
        ranked = await self._search.fuse(query, chunks, by_words)
        return await self._work(self._build_hits, document, path, ranked[:MAX_HITS], max_tokens)

    async def _work(self, work: Callable[..., T], *arguments: Any) -> T:
        """Runs what keeps a core busy in a thread, a few at a time. Nobody waits for the store here."""
        async with self._turns:
            return await asyncio.to_thread(work, *arguments)

    async def _keep(self, document: ResultDocument, user: str) -> tuple[str | None, str]:
        """The handle; or None, and why the result was not kept."""
        content = await self._work(document.pack)
        if len(content) > MAX_KEPT_BYTES:
            return None, f"it is larger than {MAX_KEPT_BYTES // 2**20} MiB even when compressed"
        handle, now = f"r_{secrets.token_hex(8)}", self._clock()
        try:
            owner = name_owner(user, self._find_profile(current_request()))
            async with asyncio.timeout(current_limits().save_result):
                await self._store.save(handle, owner, content, now=now, expires_at=now + KEPT_SECONDS)
        except (ToolscriptError, TimeoutError) as error:
            log.warning("result_not_kept", extra={"reason": str(error) or "the store was too slow"})
            is_down = isinstance(error, Unavailable | TimeoutError)
            return None, "the store does not answer" if is_down else str(error)
        return handle, ""

    async def _load(self, handle: str, user: str, path: str | None) -> ResultDocument:
        content = await self._store.read(
            handle, name_owner(user, self._find_profile(current_request())), now=self._clock()
        )
        if content is None:
            raise NotFound(
                f"no such result: {handle[:40]!r}: a result is kept for an hour, for the caller that got it; call the "
                "tool again",
                details={"handle": handle[:40]},
            )
        document = await self._work(unpack_document, content)
        return await self._work(document.select, path) if path else document

    def _measure_budget(self, max_tokens: int | None) -> int:
        tokens = max_tokens or self._max_tokens or DEFAULT_TOKENS
        return max(tokens, MIN_TOKENS) * CHARACTERS_PER_TOKEN

    def _split(self, text: str, max_tokens: int | None) -> list[tuple[int, int]]:
        return list(split_text(text, self._measure_budget(max_tokens)))

    def _build_hits(
        self, document: ResultDocument, path: str | None, chunks: list[TextChunk], max_tokens: int | None
    ) -> list[ResultHit]:
        left = self._measure_budget(max_tokens)
        above = parse_path(path or "")
        pages: dict[Path, list[int]] = {}
        hits: list[ResultHit] = []
        for chunk in chunks:
            if left <= 0:
                break
            if chunk.path not in pages and (chunk.start or not chunk.path):
                value = document.select(format_path(chunk.path)) if chunk.path else document
                pages[chunk.path] = [start for start, _ in self._split(value.text, max_tokens)]
            page = bisect_right(pages[chunk.path], chunk.start) if chunk.path in pages else None
            text = chunk.text[: find_cut(chunk.text, 0, left)]
            hits.append(ResultHit(text, format_path((*above, *chunk.path)) or None, page))
            left -= count_bytes(text)
        return hits

    def _describe_cut(
        self, document: ResultDocument, handle: str | None, reason: str, max_bytes: int, is_error: bool
    ) -> str:
        """The beginning of a result, its shape, how large the whole is, and how to go on."""
        text = document.text
        parts = [text[: find_cut(text, 0, max_bytes // _BEGINNING)].rstrip("\n")]
        if is_error:  # the last line often has the reason
            end = text[-max_bytes // _ERROR_END :]
            parts += ["[…]", end[end.find("\n") + 1 :]]
        if document.root is not None:
            parts.append(f"[Shape: {describe_shape(document.root, max_bytes // _SHAPE)}]")
        whole = f"Cut: the whole has about {_count_tokens(text)} tokens ({count_bytes(text)} bytes)."
        if handle is None:
            return "\n".join(
                [*parts, f"[{whole} It was not kept: {reason}. Call the tool again with narrower arguments.]"]
            )
        ways = [
            f'read_result(handle="{handle}", query="…") searches in it',
            f"page=1 to {len(self._split(text, None))} reads it",
        ]
        if document.root:
            first = next(iter(document.root)) if isinstance(document.root, dict) else 0
            ways.append(f"path={json.dumps(format_path((first,)), ensure_ascii=False)} takes a part of the JSON")
        return "\n".join([*parts, f"[{whole} {', '.join(ways)}.]"])


def _count_tokens(text: str) -> int:
    return estimate_tokens(count_bytes(text))
