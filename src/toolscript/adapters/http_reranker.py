"""Asks a rerank service how well passages answer a query.

Most services take `{"model", "query", "documents", "top_n"}` and answer `{"results": [{"index", "relevance_score"}]}`
(Cohere, Jina, vLLM, Infinity, llama.cpp). Text Embeddings Inference takes `{"query", "texts"}` and answers
`[{"index", "score"}]`. They are told apart by what they say: the first form is sent, and a service that refuses it and
names `texts` is asked in the second form from then on.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx

from toolscript.domain.errors import Invalid, ToolscriptError, Unavailable, UpstreamFailed

AT_ONCE = 4
MOST_DOCUMENTS, MOST_TEXTS = 500, 32
MOST_BYTES = 8 * 2**20
LONGEST_WAIT, USUAL_WAIT = 2.0, 0.25
LONGEST_REASON = 300
BUSY, REFUSED, GOOD = frozenset({429, 503}), frozenset({400, 422}), range(200, 300)
SCORES = ("relevance_score", "score")


class HttpReranker:
    """A rerank service behind a URL: that of its `/rerank`, or the one that this comes after."""

    def __init__(self, url: str, key: str | None, model: str | None, *, timeout_seconds: float = 10.0) -> None:
        """Nothing is asked yet. Raises Invalid, naming the setting."""
        self._url = _endpoint(url)
        self._where = _shown(self._url)
        self._key = key
        self._model = model
        self._timeout = timeout_seconds
        self._takes_texts = False
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._client = httpx.AsyncClient(
            headers={"Content-Type": "application/json", **_authorization(key)},
            timeout=timeout_seconds,
            follow_redirects=False,
        )

    @property
    def model(self) -> str:
        return self._model or self._where

    async def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        found: list[float] = []
        if not self._takes_texts and passages:
            # The first piece alone: it may teach how the others have to be sent.
            first = await self._piece(query, passages[:MOST_DOCUMENTS])
            found, passages = first or [], passages[len(first or ()) :]
        size = MOST_TEXTS if self._takes_texts else MOST_DOCUMENTS
        pieces = [passages[start : start + size] for start in range(0, len(passages), size)]
        for scores in await asyncio.gather(*(self._piece(query, piece) for piece in pieces)):
            if scores is None:
                raise self._failed("changed its mind about what it takes")
            found += scores
        return found

    async def close(self) -> None:
        await self._client.aclose()

    async def _piece(self, query: str, passages: Sequence[str]) -> list[float] | None:
        """The scores of some passages; None when the service wants to be asked in the other form."""
        async with self._at_once:
            try:
                # The library's own limit is per read: a service that sends a byte now and then would never reach it.
                async with asyncio.timeout(self._timeout):
                    answer = await self._ask(query, passages)
            except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError) as error:
                raise Unavailable(
                    f"the rerank service at {self._where} does not answer ({type(error).__name__}): check "
                    "TOOLSCRIPT_RERANKER",
                    details={"field": "TOOLSCRIPT_RERANKER"},
                ) from error
        return None if answer is None else self._read(answer, len(passages))

    async def _ask(self, query: str, passages: Sequence[str]) -> bytes | None:
        in_texts = self._takes_texts
        body = self._body(query, passages)
        status, headers, answer = await self._post(body)
        if status in BUSY:
            wait = _asked_to_wait(headers)
            if wait > LONGEST_WAIT:
                raise self._busy(status)
            await asyncio.sleep(wait)
            status, headers, answer = await self._post(body)
        if status in GOOD:
            return answer
        if status in REFUSED and not in_texts and b"texts" in answer:
            self._takes_texts = True
            return None
        raise self._busy(status) if status in BUSY else self._refusal(status, answer)

    async def _post(self, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        received = bytearray()
        async with self._client.stream("POST", self._url, content=body) as answer:
            async for piece in answer.aiter_bytes():
                received += piece
                if len(received) > MOST_BYTES:
                    raise self._failed(f"sent more than the {MOST_BYTES} bytes that an answer may have")
            return answer.status_code, answer.headers, bytes(received)

    def _body(self, query: str, passages: Sequence[str]) -> bytes:
        if self._takes_texts:
            asked: dict[str, Any] = {"query": query, "texts": list(passages), "truncate": True}
        else:
            asked = {"query": query, "documents": list(passages), "top_n": len(passages)}
            if self._model:
                asked["model"] = self._model
        # Half a surrogate pair is something that no request can carry.
        return json.dumps(asked, ensure_ascii=False).encode("utf-8", "replace")

    def _read(self, answer: bytes, passages: int) -> list[float]:
        """The scores in the order of the passages. Raises UpstreamFailed unless each has exactly one that is a
        number."""
        try:
            told = json.loads(answer)
            rows = told["results"] if isinstance(told, dict) else told
            pairs = [(row["index"], next(row[name] for name in SCORES if name in row)) for row in rows]
            indexes = [index for index, _ in pairs if isinstance(index, int) and not isinstance(index, bool)]
            sound = sorted(indexes) == list(range(passages)) and len(pairs) == passages
            scores = {index: _number(score) for index, score in pairs} if sound else {}
        except (ValueError, LookupError, TypeError, StopIteration, OverflowError, RecursionError) as error:
            raise self._failed(f"sent an answer that makes no sense: {self._quoted(answer)}") from error
        if not sound:
            raise self._failed(f"did not score each of the {passages} passages once: {self._quoted(answer)}")
        return [scores[index] for index in range(passages)]

    def _busy(self, status: int) -> ToolscriptError:
        return Unavailable(
            f"the rerank service at {self._where} is too busy ({status}): try again later",
            details={"field": "TOOLSCRIPT_RERANKER", "status": status},
        )

    def _refusal(self, status: int, answer: bytes) -> ToolscriptError:
        hint = {401: "TOOLSCRIPT_RERANKER_KEY", 403: "TOOLSCRIPT_RERANKER_KEY"}.get(status, "TOOLSCRIPT_RERANKER")
        return self._failed(f"answered {status}: {self._quoted(answer)}. Check {hint}", field=hint)

    def _failed(self, what: str, field: str = "TOOLSCRIPT_RERANKER") -> UpstreamFailed:
        return UpstreamFailed(f"the rerank service at {self._where} {what}", details={"field": field})

    def _quoted(self, answer: bytes) -> str:
        """What a service said, short and without the key, which some repeat."""
        said = " ".join(answer[: 4 * LONGEST_REASON].decode(errors="replace").split())
        return (said.replace(self._key, "[key]") if self._key else said)[:LONGEST_REASON] or "nothing"


def _endpoint(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname
    except ValueError:
        usable = None
    if not usable:
        raise Invalid(
            "TOOLSCRIPT_RERANKER is not usable: give the URL of a rerank service, such as "
            "http://127.0.0.1:8080/rerank, or a folder with an ONNX cross-encoder",
            details={"field": "TOOLSCRIPT_RERANKER"},
        )
    path = parts.path.rstrip("/")
    return parts._replace(path=path if path.endswith("rerank") else f"{path}/rerank").geturl()


def _authorization(key: str | None) -> dict[str, str]:
    if not key:
        return {}
    if not key.isascii() or not key.isprintable():
        raise Invalid(
            "TOOLSCRIPT_RERANKER_KEY is not usable: a key has printable ASCII characters only",
            details={"field": "TOOLSCRIPT_RERANKER_KEY"},
        )
    return {"Authorization": f"Bearer {key}"}


def _shown(url: str) -> str:
    """A URL as it may be shown: without user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _number(score: Any) -> float:
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise ValueError(f"{score!r} is no score")
    return float(score)


def _asked_to_wait(headers: Mapping[str, str]) -> float:
    """The seconds that a service asks to wait; a little when it does not say, or says a date."""
    try:
        return max(0.0, float(headers["retry-after"]))
    except (KeyError, ValueError):
        return USUAL_WAIT
