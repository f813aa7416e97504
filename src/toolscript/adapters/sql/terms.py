"""Term counts per scope (the catalogue, or one tenant), kept by the transaction that changes a text."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence

from toolscript.adapters.sql.session import Session
from toolscript.domain.search import TermCounts

EVERY_TEXT = -1


def take_turns(session: Session, scope: str) -> None:
    """To be called before a scope's texts are read or changed: what two writers read must not be the same past."""
    session.take_turns(f"terms {scope}")


def change_counts(
    session: Session,
    scope: str,
    *,
    removed: Iterable[frozenset[int]] = (),
    added: Iterable[frozenset[int]] = (),
) -> None:
    """Counts some texts out of a scope and others in; terms that nothing holds any more are forgotten."""
    change: Counter[int] = Counter()
    for terms in added:
        change.update([EVERY_TEXT, *terms])
    for terms in removed:
        change.subtract([EVERY_TEXT, *terms])
    # In order of their numbers, so that two writers never wait for each other in a circle.
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
    """How many texts a scope has, and how many hold each term."""
    found = session.rows(
        f"SELECT term, texts FROM term_counts WHERE scope = :scope AND {session.among('term', 'terms')}",
        scope=scope,
        terms=[EVERY_TEXT, *terms],
    )
    counts = {row["term"]: row["texts"] for row in found}
    return TermCounts(counts.pop(EVERY_TEXT, 0), counts)


def packed(terms: frozenset[int]) -> bytes:
    """A set of terms as a column holds it."""
    return array("I", sorted(terms)).tobytes()


def unpacked(column: bytes) -> frozenset[int]:
    """The set that `packed` wrote."""
    return frozenset(array("I", column))
