"""The declarations that somebody needs to write a program, within a budget of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolscript.codegen.programs import ProgramTools
from toolscript.services.tools.token_costs import estimate_tokens


@dataclass(frozen=True, slots=True)
class WrittenTypes:
    """Declarations of the first tools that fit into a budget."""

    text: str
    tool_ids: Sequence[str]
    left_out: Sequence[str]
    """Tools that the budget has no room for."""
    tokens: int


def format_types(tools: ProgramTools, order: Sequence[str], max_tokens: int) -> WrittenTypes:
    """The declarations of tools, in the order of their ids, as many as fit; the first in any case."""
    known = {item.id: (server, name, item) for server, name, item in tools.tools}
    ranked = [item_id for item_id in order if item_id in known]
    best = WrittenTypes("", (), ranked, 0)
    for count in range(1, len(ranked) + 1):
        text = ProgramTools(tools.language, [known[key] for key in ranked[:count]]).write_types(with_host=False)
        tokens = estimate_tokens(len(text))
        if tokens > max_tokens and count > 1:
            break
        best = WrittenTypes(text, ranked[:count], ranked[count:], tokens)
    return best
