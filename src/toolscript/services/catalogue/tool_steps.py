"""The steps of tools that count: the steps of the model in use, where feedback is on."""

from __future__ import annotations

from toolscript.domain.feedback import Step
from toolscript.ports.stores import FeedbackStore


class ToolSteps:
    """Reads the steps that count."""

    def __init__(self, store: FeedbackStore | None = None, model: str = "", *, is_on: bool = True) -> None:
        """Without a store there are none."""
        self._store = store
        self._model = model
        self._is_on = is_on

    async def read(self) -> dict[str, Step]:
        """The steps of the model by item, also steps of texts that have changed since."""
        if self._store is None or not self._is_on:
            return {}
        steps = await self._store.get_steps()
        return {i: step for i, step in steps.items() if step.vector is not None and step.model == self._model}
