"""The steps of tools' vectors, as the index uses them: those of the model in use and of unchanged texts, where feedback
is on."""

from __future__ import annotations

from collections.abc import Mapping

from toolscript.domain.feedback import Step
from toolscript.ports.stores import FeedbackStore


class ToolSteps:
    """Reads the steps that count."""

    def __init__(self, store: FeedbackStore | None = None, model: str = "", *, is_on: bool = True) -> None:
        """Without a store there are none."""
        self._store = store
        self._model = model
        self._is_on = is_on

    async def read(self, digests: Mapping[str, str]) -> dict[str, Step]:
        """The steps of those of these items (id to digest) that move."""
        if self._store is None or not self._is_on or not digests:
            return {}
        found = await self._store.get_steps(digests)
        return {i: s for i, s in found.items() if self._counts(s, digests[i])}

    async def list_items(self) -> frozenset[str]:
        """The ids of all items with steps, whether these count or not."""
        return frozenset(await self._store.get_steps()) if self._store else frozenset()

    def _counts(self, step: Step, digest: str) -> bool:
        return step.vector is not None and (step.model, step.item_digest) == (self._model, digest)
