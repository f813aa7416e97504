"""A language model behind a chat API: requests, accepted answers, and the error of each fault."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.fixtures.limits import set_limits
from tests.servers.chat import ChatApi, Reply, Script, refuses, says
from tests.servers.processes import find_free_port
from toolscript.adapters.openai_api import chat as openai_chat
from toolscript.adapters.openai_api.chat import OpenAiChat
from toolscript.adapters.outgoing.bounds import MAX_CHAT_BYTES
from toolscript.domain.errors import Invalid, ToolscriptError, Unavailable, UpstreamFailed
from toolscript.domain.limits import current_limits
from toolscript.domain.prompts import Prompt

pytestmark = pytest.mark.req("H-10")

KEY = "sk-a-key-that-nobody-may-see"
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": ["red", "blue"]}},
    "required": ["colour"],
    "additionalProperties": False,
}
PROMPT = Prompt("Name a colour.", "What colour is the sky?", SCHEMA, max_tokens=50)
BLUE = {"colour": "blue"}


@contextmanager
def chat_api(*script: Reply, answering: Any = None) -> Iterator[ChatApi]:
    replies: Script = answering or script
    with ChatApi(replies) as api:
        yield api


async def answer(api: ChatApi, *, key: str | None = KEY, **how: Any) -> dict[str, Any]:
    model = OpenAiChat(api.url, key, "tiny", **how)
    try:
        return await model.answer(PROMPT)
    finally:
        await model.close()


async def failure(api: ChatApi, **how: Any) -> ToolscriptError:
    with pytest.raises(ToolscriptError) as raised:
        await answer(api, **how)
    assert KEY not in str(raised.value.to_envelope())
    return raised.value


async def test_the_request_carries_the_schema_and_the_answer_is_returned() -> None:
    with chat_api(says(BLUE)) as api:
        assert await answer(api) == BLUE
    (request,) = api.bodies
    assert request["model"] == "tiny"
    assert [(m["role"], m["content"]) for m in request["messages"]] == [
        ("system", PROMPT.instructions),
        ("user", PROMPT.text),
    ]
    assert request["response_format"]["json_schema"] == {"name": "answer", "strict": True, "schema": SCHEMA}
    assert (request["temperature"], request["max_tokens"]) == (0, 50)
    assert api.keys == [f"Bearer {KEY}"]


@pytest.mark.slow
@pytest.mark.parametrize("fenced", ["```json\n{}\n```", "  {}\n", "```json\n{}```"])
async def test_an_answer_in_a_code_fence_is_read(fenced: str) -> None:
    with chat_api(says(fenced.replace("{}", json.dumps(BLUE)))) as api:
        assert await answer(api) == BLUE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("blue, I think", "not JSON"),
        ('["blue"]', "not a JSON object"),
        ('{"colour": "blue", "colour": "red"}', "appears twice"),
        ("[" * 100_000, "not JSON"),
        ('{"colour": "green"}', "$.colour"),
        ("{}", "colour"),
    ],
)
async def test_after_a_wrong_answer_the_prompt_is_repeated_once_with_the_reason(wrong: str | None, why: str) -> None:
    with chat_api(Reply(wrong), says(BLUE)) as api:
        assert await answer(api) == BLUE
    assert len(api.bodies) == 2
    quote, correction = api.bodies[1]["messages"][2:]
    assert quote == {"role": "assistant", "content": (wrong or "")[: openai_chat.MAX_QUOTE_LENGTH]}
    assert why in correction["content"]
    assert json.dumps(SCHEMA) in correction["content"]


async def test_a_second_wrong_answer_is_an_error() -> None:
    with chat_api(says("blue"), says("really, blue")) as api:
        error = await failure(api)
    assert isinstance(error, UpstreamFailed)
    assert "not JSON" in error.message
    assert "answer" not in error.details
    assert len(api.bodies) == 2


async def test_an_object_that_does_not_match_the_schema_is_in_the_error() -> None:
    with chat_api(says({"colour": "green"}), says("blue")) as api:
        error = await failure(api)
    assert isinstance(error, UpstreamFailed)
    assert error.details["answer"] == {"colour": "green"}


async def test_an_answer_cut_off_at_the_maximum_length_is_not_retried() -> None:
    with chat_api(Reply('{"colour": "bl', finish="length")) as api:
        error = await failure(api)
    assert isinstance(error, UpstreamFailed)
    assert "cut off" in error.message
    assert len(api.bodies) == 1


@pytest.mark.slow
@pytest.mark.parametrize("wanted", ["json_object", "text"])
async def test_a_server_without_json_schemas_gets_the_schema_in_the_prompt_from_then_on(wanted: str) -> None:
    def picky(request: dict[str, Any]) -> Reply:
        form = request.get("response_format", {}).get("type", "text")
        return says(BLUE) if form == wanted else refuses(400, f"'response_format' {form} is not supported")

    with chat_api(answering=picky) as api:
        model = OpenAiChat(api.url, None, "tiny")
        first = await asyncio.gather(*(model.answer(PROMPT) for _ in range(4)))
        before = len(api.bodies)
        assert await model.answer(PROMPT) == BLUE
        await model.close()
    assert first == [BLUE] * 4
    assert len(api.bodies) == before + 1
    assert json.dumps(SCHEMA) in api.bodies[-1]["messages"][0]["content"]


async def test_parameters_that_a_model_refuses_are_left_out() -> None:
    def reasoning(request: dict[str, Any]) -> Reply:
        if "max_tokens" in request:
            return refuses(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        if "temperature" in request:
            return refuses(422, "'temperature' does not support 0 with this model.")
        return says(BLUE)

    with chat_api(answering=reasoning) as api:
        assert await answer(api) == BLUE
    assert api.bodies[-1]["max_completion_tokens"] == 50
    assert api.bodies[-1]["response_format"]["type"] == "json_schema"


async def test_a_prompt_that_is_refused_for_another_reason_fails() -> None:
    with chat_api(refuses(400, "This model's maximum context length is 8 tokens")) as api:
        error = await failure(api)
    assert isinstance(error, UpstreamFailed)
    assert "maximum context length" in error.message
    assert len(api.bodies) == 1


async def test_a_busy_server_is_retried_after_the_time_it_names() -> None:
    busy = {"Retry-After": "0"}
    with chat_api(refuses(429, **busy), refuses(503, **busy), says(BLUE)) as api:
        assert await answer(api) == BLUE
    assert len(api.bodies) == 3


@pytest.mark.slow
@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_server_that_stays_busy_is_unavailable(status: int) -> None:
    with chat_api(refuses(status, **{"Retry-After": "0"})) as api:
        error = await failure(api, retries=2)
    assert isinstance(error, Unavailable)
    assert "TOOLSCRIPT_LLM_URL" in error.message
    assert len(api.bodies) == 3


@pytest.mark.parametrize("wait", ["3600", "inf", "21"])
async def test_a_server_that_names_too_long_a_wait_is_not_retried(wait: str) -> None:
    started = time.monotonic()
    with chat_api(refuses(429, **{"Retry-After": wait})) as api:
        assert isinstance(await failure(api), Unavailable)
    assert len(api.bodies) == 1
    assert time.monotonic() - started < 20


@pytest.mark.slow
async def test_without_a_retry_after_header_the_waits_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, chat_first_wait=0.1)
    started = time.monotonic()
    with chat_api(refuses(500), refuses(502, **{"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}), says(BLUE)) as api:
        assert await answer(api) == BLUE
    assert time.monotonic() - started >= 3 * current_limits().chat_first_wait


async def test_a_server_that_takes_too_long_is_unavailable() -> None:
    with chat_api(Reply(hold=True)) as api:
        error = await failure(api, timeout_seconds=0.2, retries=0)
    assert isinstance(error, Unavailable)
    assert "TOOLSCRIPT_LLM_TIMEOUT" in error.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "setting"),
    [
        (401, "TOOLSCRIPT_LLM_KEY"),
        (403, "TOOLSCRIPT_LLM_KEY"),
        (404, "TOOLSCRIPT_LLM_MODEL"),
        (405, "TOOLSCRIPT_LLM_URL"),
    ],
)
async def test_a_wrong_setting_is_named_and_not_retried(status: int, setting: str) -> None:
    with chat_api(refuses(status, f"Incorrect API key provided: {KEY}")) as api:
        error = await failure(api)
    assert isinstance(error, Invalid)
    assert setting in error.message
    assert len(api.bodies) == 1


async def test_without_a_server_the_error_names_the_setting() -> None:
    port = find_free_port()
    model = OpenAiChat(f"http://someone:secret@127.0.0.1:{port}/v1", KEY, "tiny", retries=0)
    with pytest.raises(Unavailable, match="TOOLSCRIPT_LLM_URL") as raised:
        await model.answer(PROMPT)
    await model.close()
    assert "secret" not in raised.value.message


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://host/v1", "http://"])
def test_an_invalid_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(Invalid, match="TOOLSCRIPT_LLM_URL"):
        OpenAiChat(url, None, "tiny")


@pytest.mark.parametrize("model", [None, ""])
def test_a_url_without_a_model_is_refused_at_once(model: str | None) -> None:
    with pytest.raises(Invalid, match="TOOLSCRIPT_LLM_MODEL"):
        OpenAiChat("http://127.0.0.1:1/v1", None, model)


async def test_a_response_beyond_the_maximum_size_is_an_error() -> None:
    with chat_api(Reply(" " * (MAX_CHAT_BYTES + 1))) as api:
        error = await failure(api)
    assert isinstance(error, UpstreamFailed)
    assert str(MAX_CHAT_BYTES) in error.message


@pytest.mark.slow
@pytest.mark.parametrize("body", [b"<html>Sign in</html>", b'{"choices": []}', b"[]"])
async def test_a_response_that_is_not_openai_compatible_is_quoted(body: bytes) -> None:
    with chat_api(Reply(body=body)) as api:
        error = await failure(api)
    assert isinstance(error, UpstreamFailed)
    assert body.decode() in error.message


@pytest.mark.slow
async def test_concurrent_prompts_are_limited() -> None:
    with chat_api(answering=lambda _: Reply(json.dumps(BLUE), hold=True)) as api:
        model = OpenAiChat(api.url, None, "tiny", at_once=3)
        answers = asyncio.gather(*(model.answer(PROMPT) for _ in range(10)))
        arrivals = [await asyncio.to_thread(api.arrived.acquire, timeout=seconds) for seconds in (60, 60, 60, 0.3)]
        assert arrivals == [True, True, True, False]
        api.let_go.set()
        assert await answers == [BLUE] * 10
        await model.close()
    assert api.max_concurrent == 3


async def test_the_tokens_of_every_call_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="toolscript")
    caplog.set_level(logging.DEBUG)
    odd = Reply(json.dumps(BLUE), usage={"prompt_tokens": "many", "completion_tokens": -4})
    with chat_api(says("blue"), says(BLUE), Reply(json.dumps(BLUE), usage=None), odd) as api:
        model = OpenAiChat(api.url, KEY, "tiny")
        for _ in range(3):
            await model.answer(PROMPT)
        await model.close()
    ours = [r for r in caplog.records if r.message == "language_model_call"]
    tokens = [(r.__dict__["prompt_tokens"], r.__dict__["completion_tokens"]) for r in ours]
    assert tokens == [(100, 10), (100, 10), (0, 0), (0, 0)]
    assert {r.__dict__["model"] for r in ours} == {"tiny"}
    assert all(r.__dict__["latency_ms"] > 0 for r in ours)
    own = [r for r in caplog.records if r.name.startswith("toolscript")]
    assert not any(KEY in str(r.__dict__) or PROMPT.text in str(r.__dict__) for r in own)
    assert not any(KEY in str(r.__dict__) for r in caplog.records)


async def test_examples_precede_the_question_as_a_conversation() -> None:
    prompt = Prompt("Name a colour.", "The sea?", SCHEMA, examples=(("Blood?", '{"colour": "red"}'),))
    with chat_api(says(BLUE)) as api:
        model = OpenAiChat(api.url, None, "tiny")
        assert await model.answer(prompt) == BLUE
        await model.close()
    assert [(m["role"], m["content"]) for m in api.bodies[0]["messages"]] == [
        ("system", "Name a colour."),
        ("user", "Blood?"),
        ("assistant", '{"colour": "red"}'),
        ("user", "The sea?"),
    ]


async def test_lone_surrogates_are_replaced() -> None:
    with chat_api(says(BLUE)) as api:
        model = OpenAiChat(api.url, None, "tiny")
        assert await model.answer(Prompt("\ud800", "a\udfffb", SCHEMA)) == BLUE
        assert model.model == "tiny"
        await model.close()
    assert [m["content"] for m in api.bodies[0]["messages"]] == ["?", "a?b"]
