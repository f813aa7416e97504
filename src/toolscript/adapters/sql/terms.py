"""Term counts per scope (the catalogue, or one tenant), updated by the transaction that changes a text."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.session import Session
from toolscript.domain.search import TermCounts

T = TypeVar("T")

ALL_TEXTS = -1  # the "term" that counts the texts of a scope


async def write_scope(database: Database, scope: str, work: Callable[[Session], T]) -> T:
    """Runs a transaction that changes texts of a scope. Transactions of one scope run one after the other: none counts
    texts that another one is about to change, and none waits in a circle."""

    def work_alone(session: Session) -> T:
        session.lock(f"terms {scope}")
        return work(session)

    return await database.write(work_alone)


def change_counts(
    session: Session,
    scope: str,
    *,
    removed: Iterable[frozenset[int]] = (),
    added: Iterable[frozenset[int]] = (),
) -> None:
    """Subtracts the terms of removed texts and adds the terms of new texts; deletes the counts that drop to 0."""
    change: Counter[int] = Counter()
    for terms in added:
        change.update([ALL_TEXTS, *terms])
    for terms in removed:
        change.subtract([ALL_TEXTS, *terms])
    # Sorted, so that two writers never wait for each other in a circle.
    rows = [{"scope": scope, "term": number, "texts": by} for number, by in sorted(change.items()) if by]
    if not rows:
        return
    session.run_many(
        "INSERT INTO term_counts (scope, term, texts) VALUES (:scope, :term, :texts) "
        "ON CONFLICT (scope, term) DO UPDATE SET texts = term_counts.texts + excluded.texts",
        rows,
    )
    if any(by < 0 for by in change.values()):
        session.run("DELETE FROM term_counts WHERE scope = :scope AND texts <= 0", scope=scope)


def count_terms(session: Session, scope: str, terms: Sequence[int]) -> TermCounts:
    """The number of texts in a scope, and the number of texts with each term."""
    rows = session.rows(
        f"SELECT term, texts FROM term_counts WHERE scope = :scope AND {session.among('term', 'terms')}",
        scope=scope,
        terms=[ALL_TEXTS, *terms],
    )
    counts = {row["term"]: row["texts"] for row in rows}
    return TermCounts(counts.pop(ALL_TEXTS, 0), counts)


def pack_terms(terms: frozenset[int]) -> bytes:
    """Encodes a set of terms for a column."""
    return array("I", sorted(terms)).tobytes()


def unpack_terms(column: bytes) -> frozenset[int]:
    """Decodes what `pack_terms` wrote."""
    return frozenset(array("I", column))
