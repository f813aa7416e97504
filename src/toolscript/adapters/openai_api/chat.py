"""Asks any language model behind an API that speaks OpenAI's chat protocol, and takes only answers that fit.

Servers differ in what they take, so the adapter learns: what a server refuses by name is left out from then on. It
waits and tries again itself, not through the client library, because the library obeys whatever wait a server asks for.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from toolscript.domain.errors import Invalid, Unavailable, UpstreamFailed
from toolscript.domain.prompts import Prompt

MOST_BYTES = 1_000_000
MOST_WAITING = 20.0
FIRST_WAIT = 0.5
LONGEST_REASON = 300
LONGEST_QUOTE = 4000
NO_KEY = "no-key-is-set"
PASSING = frozenset({408, 409, 425, 429})
SERVER_FAULT = 500
TYPED, OBJECT, TEXT = "json_schema", "json_object", "text"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Spent:
    """What the answers so far have cost; a server that does not count its tokens counts for none."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Manner:
    """How a server wants to be asked."""

    form: str = TYPED
    length: str = "max_tokens"
    cool: bool = True
    """Whether it lets the temperature be chosen."""

    def after(self, refusal: str) -> Manner | None:
        """How to ask instead, after a refusal in these words; None when they name nothing that could be left out."""
        said = refusal.lower()
        if "max_completion_tokens" in said and self.length == "max_tokens":
            return replace(self, length="max_completion_tokens")
        if "temperature" in said and self.cool:
            return replace(self, cool=False)
        if self.form != TEXT and any(word in said for word in ("response_format", "schema", "json_object", "grammar")):
            return replace(self, form=OBJECT if self.form == TYPED else TEXT)
        return None


@dataclass(frozen=True, slots=True)
class Said:
    """What came back: the text, and whether it was cut off for its length."""

    text: str
    cut: bool = False


class OpenAiChat:
    """A model behind a base URL, asked a few prompts at a time."""

    def __init__(self, client: openai.AsyncOpenAI, model: str, *, timeout_seconds: float, at_once: int, retries: int):
        self._client = client
        self._model = model
        self._timeout = timeout_seconds
        self._at_once = asyncio.Semaphore(at_once)
        self._retries = retries
        self._manner = Manner()
        self.spent = Spent()

    @classmethod
    def at(
        cls,
        url: str,
        key: str | None,
        model: str | None,
        *,
        timeout_seconds: float = 30.0,
        at_once: int = 4,
        retries: int = 2,
    ) -> OpenAiChat:
        """The model of that name behind that URL; nothing is asked yet. Raises Invalid, naming the setting."""
        if not url.startswith(("http://", "https://")) or not urlsplit(url).hostname:
            raise Invalid(
                "TOOLSCRIPT_LLM_URL is not usable: give the base URL of an OpenAI-compatible API, "
                "such as http://127.0.0.1:8080/v1",
                details={"field": "TOOLSCRIPT_LLM_URL"},
            )
        if not model:
            raise Invalid(
                "TOOLSCRIPT_LLM_URL is set and TOOLSCRIPT_LLM_MODEL is not: give the name of a model of that API",
                details={"field": "TOOLSCRIPT_LLM_MODEL"},
            )
        client = openai.AsyncOpenAI(base_url=url, api_key=key or NO_KEY, timeout=timeout_seconds, max_retries=0)
        return cls(client, model, timeout_seconds=timeout_seconds, at_once=at_once, retries=retries)

    @property
    def model(self) -> str:
        return self._model

    async def answer(self, prompt: Prompt) -> dict[str, Any]:
        """An object that fits the prompt's schema, asked for a second time when the first does not. Raises Unavailable,
        Invalid for a wrong key, model or URL, and UpstreamFailed, with the object that did not fit as `answer`."""
        shown = [_message(*m) for text, good in prompt.examples for m in (("user", text), ("assistant", good))]
        messages = [_message("system", prompt.instructions), *shown, _message("user", prompt.text)]
        last: dict[str, Any] | None = None
        async with self._at_once:
            said = await self._ask(messages, prompt)
            last, problem = _read(said, prompt.answer)
            if problem and said.cut:
                problem = "it was cut off, because it is longer than it may be"
            elif problem:
                quote = _message("assistant", said.text[:LONGEST_QUOTE])
                again = _message("user", _repair(problem, prompt.answer))
                second, problem = _read(await self._ask([*messages, quote, again], prompt), prompt.answer)
                last = last if second is None else second
        if problem is None and last is not None:
            return last
        raise self._failed(f"gave an answer that cannot be used: {problem}", answer=last)

    async def close(self) -> None:
        await self._client.close()

    async def _ask(self, messages: list[dict[str, str]], prompt: Prompt) -> Said:
        waited, tries = 0.0, 0
        while True:
            manner = self._manner
            try:
                return await self._call(_request(manner, messages, prompt))
            except openai.APIStatusError as error:
                status, reason = error.status_code, self._shown(f"{error.param or ''} {error.message}")
                wait = _asked_to_wait(error.response.headers)
                if status not in PASSING and status < SERVER_FAULT:
                    self._take_refusal(status, reason, manner)
                    continue
            except (openai.OpenAIError, httpx2.HTTPError, TimeoutError) as error:
                reason, wait = self._shown(f"{error} {error.__cause__ or ''}".strip() or "it took too long"), None
            wait = FIRST_WAIT * 2**tries if wait is None else wait
            tries, waited = tries + 1, waited + wait
            if tries > self._retries or waited > MOST_WAITING:
                raise Unavailable(
                    f"the language model {self._model!r} at {self._where} cannot be had after {tries} tries: {reason}. "
                    "Check TOOLSCRIPT_LLM_URL, or give it longer with TOOLSCRIPT_LLM_TIMEOUT",
                    details={"field": "TOOLSCRIPT_LLM_URL", "model": self._model},
                )
            await asyncio.sleep(wait)

    def _take_refusal(self, status: int, reason: str, manner: Manner) -> None:
        """Learns what to leave out from now on. Raises Invalid or UpstreamFailed when that is not what is wrong."""
        where = f"the language model {self._model!r} at {self._where}"
        if status in {401, 403}:
            raise Invalid(
                f"{where} is refused to us ({status}): {reason}. Check TOOLSCRIPT_LLM_KEY",
                details={"field": "TOOLSCRIPT_LLM_KEY", "model": self._model},
            )
        if status in {404, 405}:
            raise Invalid(
                f"{where} does not exist ({status}): {reason}. Check TOOLSCRIPT_LLM_URL and TOOLSCRIPT_LLM_MODEL",
                details={"field": "TOOLSCRIPT_LLM_MODEL", "model": self._model},
            )
        other = manner.after(reason) if status in {400, 422} else None
        if other is None:
            raise self._failed(f"refuses the prompt ({status}): {reason}")
        if self._manner == manner:  # another call may have learnt it meanwhile
            self._manner = other
            log.info("language_model_asked_otherwise", extra={"model": self._model, "reason": reason})

    async def _call(self, request: dict[str, Any]) -> Said:
        started = time.perf_counter()
        body = bytearray()
        # The library's own limit is per read: a server that sends a byte now and then would never reach it.
        async with (
            asyncio.timeout(self._timeout),
            self._client.chat.completions.with_streaming_response.create(model=self._model, **request) as response,
        ):
            async for piece in response.iter_bytes():
                body += piece
                if len(body) > MOST_BYTES:
                    raise self._failed(f"sent more than the {MOST_BYTES} bytes that an answer may have")
        try:
            told = json.loads(body)
            choice = told["choices"][0]
            text = choice["message"].get("content") or ""
            said = Said(text if isinstance(text, str) else json.dumps(text), choice.get("finish_reason") == "length")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            shown = self._shown(bytes(body[:LONGEST_REASON]).decode(errors="replace"))
            raise self._failed(f"did not answer as an OpenAI-compatible API does: {shown}") from error
        self._count(told.get("usage"), time.perf_counter() - started)
        return said

    def _count(self, usage: Any, seconds: float) -> None:
        counted = usage if isinstance(usage, Mapping) else {}
        prompt, completion = (
            n if isinstance(n := counted.get(name), int) and n > 0 else 0
            for name in ("prompt_tokens", "completion_tokens")
        )
        so_far = self.spent
        self.spent = Spent(so_far.calls + 1, so_far.prompt_tokens + prompt, so_far.completion_tokens + completion)
        cost = {"prompt_tokens": prompt, "completion_tokens": completion, "latency_ms": round(seconds * 1000, 1)}
        log.info("language_model_call", extra={"model": self._model, **cost})

    @property
    def _where(self) -> str:
        """The URL as it may be shown: without a user, a password or a query."""
        url = urlsplit(str(self._client.base_url))
        return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"

    def _shown(self, said: str) -> str:
        """What a server said, short and without the key, which some servers repeat."""
        return " ".join(said.replace(self._client.api_key, "[key]").split())[:LONGEST_REASON]

    def _failed(self, what: str, *, answer: dict[str, Any] | None = None) -> UpstreamFailed:
        details = {"field": "TOOLSCRIPT_LLM_MODEL", "model": self._model}
        return UpstreamFailed(
            f"the language model {self._model!r} at {self._where} {what}",
            details=details if answer is None else {**details, "answer": answer},
        )


def _message(role: str, text: str) -> dict[str, str]:
    """A message; half a surrogate pair, which no request can carry, is replaced."""
    return {"role": role, "content": text.encode("utf-8", "replace").decode()}


def _request(manner: Manner, messages: list[dict[str, str]], prompt: Prompt) -> dict[str, Any]:
    request: dict[str, Any] = {"messages": messages, manner.length: prompt.max_tokens}
    if manner.cool:
        request["temperature"] = 0
    if manner.form == TYPED:
        typed = {"name": "answer", "strict": True, "schema": prompt.answer}
        request["response_format"] = {"type": TYPED, TYPED: typed}
        return request
    if manner.form == OBJECT:
        request["response_format"] = {"type": OBJECT}
    system = f"{messages[0]['content']}\n\n{_wanted(prompt.answer)}"
    return {**request, "messages": [{**messages[0], "content": system}, *messages[1:]]}


def _wanted(schema: Mapping[str, Any]) -> str:
    return f"Answer with one JSON object and nothing else. It must fit this JSON schema:\n{json.dumps(schema)}"


def _repair(problem: str, schema: Mapping[str, Any]) -> str:
    return f"That answer cannot be used: {problem}. {_wanted(schema)}"


def _read(said: Said, schema: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str | None]:
    """The object in an answer, if there is one, and what is wrong with it, if something is."""
    text = said.text.strip()
    if text.startswith("```") and text.endswith("```"):
        text = text.partition("\n")[2].removesuffix("```")
    try:
        found = json.loads(text, object_pairs_hook=_each_once, parse_constant=_no_number)
        if not isinstance(found, dict):
            return None, "it is not a JSON object"
        error = best_match(Draft202012Validator(schema).iter_errors(found))
    except (ValueError, RecursionError) as fault:
        return None, f"it is not JSON that can be read: {str(fault)[:LONGEST_REASON]}"
    return found, error and f"at {error.json_path}: {error.message[:LONGEST_REASON]}"


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key appears twice in an object")
    return found


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _asked_to_wait(headers: Mapping[str, str]) -> float | None:
    """The seconds that a server asks to wait; None when it says nothing, or a date."""
    try:
        return max(0.0, float(headers["retry-after"]))
    except (KeyError, ValueError):
        return None
