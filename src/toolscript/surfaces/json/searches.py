"""What the definitions of the responses of several searches share."""

from __future__ import annotations

from typing import Annotated

from toolscript.domain.search import SearchPart
from toolscript.services.documents.request import USUAL_RELEVANCE

Degraded = Annotated[list[SearchPart], "Parts of the search that failed."]
OptionalDegraded = Annotated[list[SearchPart], "Parts of the search that failed. Left out if there are none."]
RELEVANCE = (
    "Estimated probability that it is relevant to the query, from its similarity and the words that it shares with the "
    "query. Comparable between searches, unlike `score`. Null if it is unknown: for a model that it is not fitted "
    "with, where no words are compared either."
)
NOTHING_RELEVANT = (
    f"Whether nothing has a relevance of `min_relevance`, or without one of {USUAL_RELEVANCE}: the query is most "
    "likely about something else."
)
