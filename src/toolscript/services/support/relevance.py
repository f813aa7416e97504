"""What documents and knowledge say where relevance is unknown."""

from __future__ import annotations

from toolscript.domain.errors import InvalidArguments


def unknown_relevance() -> InvalidArguments:
    """The error for a minimum relevance where none can be estimated."""
    return InvalidArguments(
        "min_relevance: unknown for this search: relevances are not fitted for the embedding model, and no words were "
        "compared. Leave it out, search documents by keyword, or set TOOLSCRIPT_TEXT_MODEL to all-MiniLM-L6-v2",
        details={"field": "min_relevance"},
    )
