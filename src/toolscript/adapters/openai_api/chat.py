"""A language model behind any OpenAI-compatible chat API; returns only answers that match the prompt's schema.

Servers support different parameters, so the adapter learns: a parameter that a server refuses by name is left out from
then on. It retries itself because the client library waits for as long as a server asks.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx2
import openai
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from toolscript.adapters.outgoing.bounds import MAX_CHAT_BYTES
from toolscript.adapters.outgoing.client import AnswerTooLarge, BoundedClient
from toolscript.adapters.outgoing.remote_services import (
    hide_credentials,
    read_retry_after,
    require_http_url,
    require_unique_keys,
)
from toolscript.domain.errors import Invalid, Unavailable, UpstreamFailed
from toolscript.domain.limits import current_limits
from toolscript.domain.prompts import Prompt

MAX_WAIT_SECONDS = 20.0
MAX_REASON_LENGTH = 300
MAX_QUOTE_LENGTH = 4000
NO_KEY = "no-key-is-set"
RETRIED_STATUSES = frozenset({408, 409, 425, 429})
SERVER_FAULT = 500
TYPED, OBJECT, TEXT = "json_schema", "json_object", "text"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RequestStyle:
    """The parameters that a server supports."""

    form: str = TYPED
    length: str = "max_tokens"
    has_temperature: bool = True

    def adapt(self, refusal: str) -> RequestStyle | None:
        """The style to use after this refusal; None when it names no parameter that could be left out."""
        text = refusal.lower()
        if "max_completion_tokens" in text and self.length == "max_tokens":
            return replace(self, length="max_completion_tokens")
        if "temperature" in text and self.has_temperature:
            return replace(self, has_temperature=False)
        if self.form != TEXT and any(word in text for word in ("response_format", "schema", "json_object", "grammar")):
            return replace(self, form=OBJECT if self.form == TYPED else TEXT)
        return None


@dataclass(frozen=True, slots=True)
class Completion:
    """The text of a model, and whether it was cut off at the maximum length."""

    text: str
    is_cut: bool = False


class OpenAiChat:
    """A model behind a base URL, with a limit on concurrent prompts."""

    def __init__(
        self,
        url: str,
        key: str | None,
        model: str | None,
        *,
        timeout_seconds: float = 30.0,
        at_once: int = 4,
        retries: int = 2,
    ) -> None:
        """Connects on first use. Raises Invalid, naming the setting."""
        allowed = "the base URL of an OpenAI-compatible API, such as http://127.0.0.1:8080/v1"
        require_http_url(url, "TOOLSCRIPT_LLM_URL", allowed)
        if not model:
            raise Invalid(
                "TOOLSCRIPT_LLM_URL is set without TOOLSCRIPT_LLM_MODEL: give the name of a model of that API",
                details={"field": "TOOLSCRIPT_LLM_MODEL"},
            )
        self.model = model
        http = BoundedClient(max_bytes=MAX_CHAT_BYTES, timeout=timeout_seconds)
        self._client = openai.AsyncOpenAI(
            base_url=url, api_key=key or NO_KEY, timeout=timeout_seconds, max_retries=0, http_client=http
        )
        self._name = f"the language model {model!r} at {hide_credentials(str(self._client.base_url))}"
        self._timeout = timeout_seconds
        self._limit = asyncio.Semaphore(at_once)
        self._retries = retries
        self._style = RequestStyle()

    async def answer(self, prompt: Prompt) -> dict[str, Any]:
        """An object that matches the prompt's schema; tries a second time when the first answer does not. Raises
        Unavailable, Invalid for a wrong key, model or URL, and UpstreamFailed with the last object as `answer`."""
        examples = [_message(*m) for text, good in prompt.examples for m in (("user", text), ("assistant", good))]
        messages = [_message("system", prompt.instructions), *examples, _message("user", prompt.text)]
        last: dict[str, Any] | None = None
        async with self._limit:
            completion = await self._complete(messages, prompt)
            last, problem = _parse(completion, prompt.answer)
            if problem and completion.is_cut:
                problem = "it was cut off at the maximum length"
            elif problem:
                quote = _message("assistant", completion.text[:MAX_QUOTE_LENGTH])
                correction = _message("user", f"That answer cannot be used: {problem}. {_describe(prompt.answer)}")
                second, problem = _parse(await self._complete([*messages, quote, correction], prompt), prompt.answer)
                last = last if second is None else second
        if problem is None and last is not None:
            return last
        raise self._fail(f"gave an unusable answer: {problem}", answer=last)

    async def close(self) -> None:
        await self._client.close()

    async def _complete(self, messages: list[dict[str, str]], prompt: Prompt) -> Completion:
        waited, tries = 0.0, 0
        while True:
            style = self._style
            try:
                return await self._call(_build_request(style, messages, prompt))
            except openai.APIStatusError as error:
                status, reason = error.status_code, self._clean(f"{error.param or ''} {error.message}")
                wait = read_retry_after(error.response.headers)
                if status not in RETRIED_STATUSES and status < SERVER_FAULT:
                    self._adapt(status, reason, style)
                    continue
            except AnswerTooLarge:  # an error has less than an answer may have
                raise self._fail(f"sent more than the maximum of {MAX_CHAT_BYTES} bytes") from None
            except (openai.OpenAIError, httpx2.HTTPError, TimeoutError) as error:
                reason, wait = self._clean(f"{error} {error.__cause__ or ''}".strip() or "timeout"), None
            wait = current_limits().chat_first_wait * 2**tries if wait is None else wait
            tries, waited = tries + 1, waited + wait
            if tries > self._retries or waited > MAX_WAIT_SECONDS:
                raise Unavailable(
                    f"{self._name} failed {tries} times: {reason}. "
                    "Check TOOLSCRIPT_LLM_URL, or raise TOOLSCRIPT_LLM_TIMEOUT",
                    details={"field": "TOOLSCRIPT_LLM_URL", "model": self.model},
                )
            await asyncio.sleep(wait)

    def _adapt(self, status: int, reason: str, style: RequestStyle) -> None:
        """Leaves out the parameter that was refused. Raises Invalid or UpstreamFailed for any other refusal."""
        if status in {401, 403}:
            raise Invalid(
                f"{self._name} denies access ({status}): {reason}. Check TOOLSCRIPT_LLM_KEY",
                details={"field": "TOOLSCRIPT_LLM_KEY", "model": self.model},
            )
        if status in {404, 405}:
            raise Invalid(
                f"{self._name} does not exist ({status}): {reason}. Check TOOLSCRIPT_LLM_URL and TOOLSCRIPT_LLM_MODEL",
                details={"field": "TOOLSCRIPT_LLM_MODEL", "model": self.model},
            )
        other = style.adapt(reason) if status in {400, 422} else None
        if other is None:
            raise self._fail(f"refuses the prompt ({status}): {reason}")
        if self._style == style:  # else another call has adapted it already
            self._style = other
            log.info("language_model_asked_otherwise", extra={"model": self.model, "reason": reason})

    async def _call(self, request: dict[str, Any]) -> Completion:
        started = time.perf_counter()
        # The library's timeout is per read: a server that sends single bytes would never reach it.
        async with (
            asyncio.timeout(self._timeout),
            self._client.chat.completions.with_streaming_response.create(model=self.model, **request) as response,
        ):
            body = await response.read()
        try:
            response_json = json.loads(body)
            choice = response_json["choices"][0]
            content = choice["message"].get("content") or ""
            text = content if isinstance(content, str) else json.dumps(content)
            completion = Completion(text, is_cut=choice.get("finish_reason") == "length")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            quote = self._clean(body[:MAX_REASON_LENGTH].decode(errors="replace"))
            raise self._fail(f"did not answer as an OpenAI-compatible API does: {quote}") from error
        self._log_usage(response_json.get("usage"), time.perf_counter() - started)
        return completion

    def _log_usage(self, usage: Any, seconds: float) -> None:
        counts = usage if isinstance(usage, Mapping) else {}
        tokens = {
            name: n if isinstance(n := counts.get(name), int) and n > 0 else 0
            for name in ("prompt_tokens", "completion_tokens")
        }
        latency = round(seconds * 1000, 1)
        log.info("language_model_call", extra={"model": self.model, **tokens, "latency_ms": latency})

    def _clean(self, text: str) -> str:
        """A server's message, short and without the key: some servers repeat the key."""
        return " ".join(text.replace(self._client.api_key, "[key]").split())[:MAX_REASON_LENGTH]

    def _fail(self, what: str, *, answer: dict[str, Any] | None = None) -> UpstreamFailed:
        details = {"field": "TOOLSCRIPT_LLM_MODEL", "model": self.model}
        return UpstreamFailed(
            f"{self._name} {what}",
            details=details if answer is None else {**details, "answer": answer},
        )


def _message(role: str, text: str) -> dict[str, str]:
    """A message. Lone surrogates are replaced: JSON in UTF-8 cannot carry them."""
    return {"role": role, "content": text.encode("utf-8", "replace").decode()}


def _build_request(style: RequestStyle, messages: list[dict[str, str]], prompt: Prompt) -> dict[str, Any]:
    request: dict[str, Any] = {"messages": messages, style.length: prompt.max_tokens}
    if style.has_temperature:
        request["temperature"] = 0
    if style.form == TYPED:
        typed = {"name": "answer", "strict": True, "schema": prompt.answer}
        request["response_format"] = {"type": TYPED, TYPED: typed}
        return request
    if style.form == OBJECT:
        request["response_format"] = {"type": OBJECT}
    system = f"{messages[0]['content']}\n\n{_describe(prompt.answer)}"
    return {**request, "messages": [{**messages[0], "content": system}, *messages[1:]]}


def _describe(schema: Mapping[str, Any]) -> str:
    return f"Answer with one JSON object and nothing else. It must fit this JSON schema:\n{json.dumps(schema)}"


def _parse(completion: Completion, schema: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str | None]:
    """The object in an answer, if any, and what is wrong with the answer, if anything."""
    text = completion.text.strip()
    if text.startswith("```") and text.endswith("```"):
        text = text.partition("\n")[2].removesuffix("```")
    try:
        found = json.loads(text, object_pairs_hook=require_unique_keys, parse_constant=_refuse_constant)
        if not isinstance(found, dict):
            return None, "it is not a JSON object"
        error = best_match(Draft202012Validator(schema).iter_errors(found))
    except (ValueError, RecursionError) as fault:
        return None, f"it is not JSON: {str(fault)[:MAX_REASON_LENGTH]}"
    return found, error and f"at {error.json_path}: {error.message[:MAX_REASON_LENGTH]}"


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
