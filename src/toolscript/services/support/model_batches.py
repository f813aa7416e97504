"""Asks a language model about many things, a few per prompt, and keeps the usable part of its answers."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from toolscript.domain.errors import Invalid, Unavailable, UpstreamFailed
from toolscript.domain.prompts import Prompt
from toolscript.ports.models import LanguageModel
from toolscript.services.support.concurrency import run_all

FAILURES_IN_A_ROW = 3

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
Answer = TypeVar("Answer")


def one_line(value: object, max_length: int) -> str:
    """An untrusted text as one line without control characters, at most `max_length` long; empty if not a string."""
    if not isinstance(value, str):
        return ""
    seen = value[: 8 * max_length]
    plain = "".join(" " if c.isspace() else c for c in seen if c.isspace() or unicodedata.category(c)[0] != "C")
    line = " ".join(plain.split())
    return line if len(line) <= max_length else f"{line[: max_length - 1].rstrip()}…"


def object_schema(**properties: Any) -> dict[str, Any]:
    """The JSON schema of an object that has exactly these properties."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


class _ModelGone(Exception):
    """The model does not respond: the remaining prompts are cancelled."""


class ModelBatches(Generic[K, T, Answer]):
    """Asks about batches of things. Errors of the model are not raised. Things that the model answered twice without a
    usable entry are in `unclear`; things in neither `found` nor `unclear` had no answer, for the reason in `lost`."""

    def __init__(
        self,
        model: LanguageModel,
        build_prompt: Callable[[Sequence[T]], Prompt],
        parse: Callable[[Any, T], Answer | None],
        on_done: Callable[[int], None] = lambda _: None,
    ) -> None:
        """The answer to a prompt has an entry for each thing, by its number from 1. `parse` returns None for an entry
        that is not usable. `on_done` gets the size of each completed batch."""
        self._model = model
        self._build_prompt = build_prompt
        self._parse = parse
        self._on_done = on_done
        self._failures = 0
        self.found: dict[K, Answer] = {}
        self.unclear: dict[K, str] = {}
        """Why there is no answer."""
        self.lost = ""

    async def ask(self, batches: Iterable[Mapping[K, T]]) -> None:
        """Asks about all batches at once: the model itself limits how many prompts run at a time."""
        with suppress(_ModelGone):
            await run_all(self._ask(batch) for batch in batches)

    async def _ask(self, batch: Mapping[K, T]) -> None:
        left = await self._ask_once(batch)
        if len(batch) == 1:
            self.unclear |= left
        else:
            for key in left:
                self.unclear |= await self._ask_once({key: batch[key]})
        self._on_done(len(batch))

    async def _ask_once(self, batch: Mapping[K, T]) -> dict[K, str]:
        """Adds the usable answers; returns the things without one, each with the reason."""
        answers: Mapping[str, Any]
        try:
            answers = await self._model.answer(self._build_prompt(list(batch.values())))
            reason = "the answer has no valid entry for it"
        except UpstreamFailed as error:
            partial = error.details.get("answer")
            answers, reason = partial if isinstance(partial, Mapping) else {}, error.message
        except (Unavailable, Invalid) as error:
            self._failures += 1
            self.lost = error.message
            # Hundreds of timeouts would take hours; the next run asks about the rest.
            if isinstance(error, Invalid) or self._failures >= FAILURES_IN_A_ROW:
                raise _ModelGone from error
            return {}
        self._failures = 0
        parsed = {key: self._parse(answers.get(str(n)), batch[key]) for n, key in enumerate(batch, start=1)}
        self.found |= {key: answer for key, answer in parsed.items() if answer is not None}
        return {key: reason for key, answer in parsed.items() if answer is None}
