"""Finds the clauses of a sentence that each ask for something of their own: a verb and its own object.

English only, and by lists of words: a request in another language, or one that the lists do not know, is one clause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from toolscript.retrieval.text.words import STOP_WORDS, stem, words

Span = tuple[int, int]

# Words that begin a request and hardly mean anything else there.
_VERBS = frozenset(
    """
    add analyse analyze append apply arrange ask assign attach buy calculate cancel check collect compare
    compile compute connect convert count create crop delete describe detect disable draw edit enable encrypt
    enter evaluate execute explain extract fetch find fix follow forward gather generate get give go identify
    import insert install invite join list look make modify move navigate notify organize pay pick play predict
    prepare print publish push put read rebase recommend register remind remove rename replace reserve resize
    restart retrieve rotate save scan select sell send share show submit subscribe suggest summarise summarize
    take tell transfer translate turn unlock update upgrade upload validate verify visit visualise visualize
    write
    """.split()
)
# Verbs as often as nouns: "issues and pull requests" is a list, "and pull the image" is a request.
_VERBS_OR_NOUNS = frozenset(
    """
    archive book build chart click clone comment commit copy deploy display download email export file filter
    graph group label launch log mail map mark merge message monitor note open order plan plot post process pull
    query record release reply report request review run schedule search set sort start stop store tag test
    track trigger type watch
    """.split()
)
_BEFORE_VERBS = frozenset(("to", "please", "you", "then", "and"))
_DETERMINERS = frozenset(
    """
    a all an another any both each every her his it its me my new our some that the their them these this those to us
    your what whether which who how where when if on in for about
    """.split()
)
_ADVERBS = frozenset("also additionally afterwards finally first lastly next now please then to and".split())
_PRONOUNS = frozenset("it its them they this that these those me us him her everything all result results".split())

_SEPARATOR = re.compile(
    r"(?<=[.!?;])\s+|\s*\n+\s*(?:[-*•]\s+|\d+[.)]\s+)?"
    r"|,?(?:\s+(?:and|then|after\s+that|afterwards|finally))+\s+|,\s+",
    re.IGNORECASE,
)
# A file's content or a message may have clauses, too, and asks for nothing.
_QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”|`[^`]*`|(?<!\w)'[^']*'(?!\w)")
_WORD = re.compile(r"[^\s,;:!?()\"'`“”]+")


def split_clauses(text: str) -> list[Span]:
    """The clauses of a text, in order: cut where the words before and after each have a verb with an object, and the
    objects differ."""
    spans: list[Span] = []
    start = 0
    masked = _QUOTED.sub(lambda quoted: "_" * len(quoted[0]), text)
    for match in _SEPARATOR.finditer(masked):
        if _is_request(masked[match.end() :], is_start=True) and _is_request(masked[start : match.start()]):
            spans.append((start, match.start()))
            start = match.end()
    spans.append((start, len(text)))
    return _join_same_objects(text, spans)


def _is_request(text: str, *, is_start: bool = False) -> bool:
    """Whether a text has a verb with an object of its own, at its start or anywhere."""
    clause = _SEPARATOR.split(text, maxsplit=1)[0] if is_start else text
    clause_words = [word.rstrip(".") for word in _WORD.findall(clause)]
    return any(_has_object(rest) for rest in _find_verbs(clause_words, is_start=is_start))


def _find_verbs(clause_words: Sequence[str], *, is_start: bool) -> Iterator[Sequence[str]]:
    """The words after each verb."""
    for at, word in enumerate(clause_words):
        following = clause_words[at + 1] if at + 1 < len(clause_words) else ""
        if word.islower() or at == 0:
            verb = word.lower()
            is_in_place = is_start or at == 0 or clause_words[at - 1].lower() in _BEFORE_VERBS
            if verb in _VERBS or (verb in _VERBS_OR_NOUNS and is_in_place and _begins_object(following)):
                yield clause_words[at + 1 :]
        if is_start and word.lower() not in _ADVERBS:
            return


def _begins_object(word: str) -> bool:
    return word.lower() in _DETERMINERS or (bool(word) and not word.isalpha()) or word[:1].isupper()


def _has_object(rest: Sequence[str]) -> bool:
    lower = [word.lower() for word in rest]
    return any(
        word not in _PRONOUNS
        and word not in STOP_WORDS
        and (word not in _VERBS or (at > 0 and lower[at - 1] in _DETERMINERS))
        for at, word in enumerate(lower)
    )


def _join_same_objects(text: str, spans: Sequence[Span]) -> list[Span]:
    joined: list[Span] = []
    for span in spans:
        if joined and _get_object(text, span) == _get_object(text, joined[-1]):
            joined[-1] = joined[-1][0], span[1]
        else:
            joined.append(span)
    return joined


def _get_object(text: str, span: Span) -> frozenset[str]:
    content_words = [w for w in words(text[slice(*span)]) if w not in STOP_WORDS and w not in _ADVERBS]
    return frozenset(map(stem, content_words[1:]))
