"""Answers that were given before, for as long as nothing has changed that they were made from."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Question = TypeVar("Question", bound=Hashable)
Answer = TypeVar("Answer")
# When a question was asked: how many changes there had been, and the time.
Moment = tuple[int, float]

ROOM = 1024


class ResultCache(Generic[Question, Answer]):
    """The last answers. One that was on its way while something changed is not found again."""

    def __init__(
        self, *, oldest: float | None = None, room: int = ROOM, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`oldest` is how many seconds an answer is good for, where others may change what it was made from."""
        self._oldest = oldest
        self._room = room
        self._clock = clock
        self._changes = 0
        self._answers: OrderedDict[Question, tuple[Answer, Moment]] = OrderedDict()

    def changed(self) -> None:
        """Forgets everything: what answers are made from has changed."""
        self._changes += 1
        self._answers.clear()

    def now(self) -> Moment:
        """To be taken before an answer is looked for, and given when it is kept."""
        return self._changes, self._clock()

    def find(self, question: Question) -> Answer | None:
        """The answer, if it is still good."""
        held = self._answers.get(question)
        if held is None:
            return None
        answer, (changes, at) = held
        if changes != self._changes or (self._oldest is not None and self._clock() - at >= self._oldest):
            del self._answers[question]
            return None
        self._answers.move_to_end(question)
        return answer

    def keep(self, question: Question, answer: Answer, at: Moment) -> None:
        """Keeps an answer that was looked for at that moment."""
        if at[0] != self._changes:
            return
        self._answers[question] = answer, at
        self._answers.move_to_end(question)
        if len(self._answers) > self._room:
            self._answers.popitem(last=False)
