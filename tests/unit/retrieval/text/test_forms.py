"""Documents of any language are found by forms of their words, whatever the language of the query."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from toolscript.domain.search import TermCounts
from toolscript.retrieval.bm25 import document_terms
from toolscript.retrieval.query_forms import weigh_query_forms
from toolscript.retrieval.text.forms import count_document_forms, list_query_forms
from toolscript.retrieval.text.item_text import DOCUMENT_AVERAGE_LENGTH
from toolscript.retrieval.text.languages import LANGUAGES, detect_language
from toolscript.retrieval.text.snippets import build_snippet
from toolscript.retrieval.text.words import stem, term, tokens

SETS = Path(__file__).parents[3] / "fixtures" / "languages"

pytestmark = pytest.mark.req("F-03")


class Tenant:
    """Documents that are ranked as the engines do."""

    def __init__(self, *texts: str) -> None:
        forms = [count_document_forms(text) for text in texts]
        self.counts = Counter(number for each in forms for number in each)
        self.weights = []
        for each in forms:
            terms = document_terms(each, DOCUMENT_AVERAGE_LENGTH)
            self.weights.append(dict(zip(terms.ids, terms.weights, strict=True)))
        self.requests: list[Sequence[int]] = []

    async def count_terms(self, terms: Sequence[int]) -> TermCounts:
        self.requests.append(terms)
        return TermCounts(len(self.weights), {n: self.counts[n] for n in terms if self.counts[n]})

    async def find(self, query: str) -> list[int]:
        """The numbers of the documents, best first."""
        terms = (await weigh_query_forms(query, self.count_terms)).terms
        wanted = dict(zip(terms.ids, terms.weights, strict=True))
        scores = [sum(w * own.get(n, 0.0) for n, w in wanted.items()) for own in self.weights]
        return sorted((n for n, score in enumerate(scores) if score > 0), key=lambda n: (-scores[n], n))


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("天気", "東京の天気"),
        ("東京", "東京の天気"),
        ("猫", "我家的猫喜欢睡觉"),
        ("cafe", "Un café noir."),
        ("CAFÉ", "cafe"),
        ("strasse", "Die Straße ist gesperrt."),
        ("Muenchen", "Die Züge nach München fahren um acht, und der Bus fährt nicht."),
        ("Häuser", "Das alte Haus ist mit dem Dach aus dem Jahr 1900."),
        ("livres empruntes", "Un livre emprunté est dans la bibliothèque avec les autres."),
        ("ﾊﾟｿｺﾝ", "パソコンの電源"),
        ("날씨", "오늘 날씨가 좋다"),
        ("สวัสดี", "สวัสดีครับ"),
        ("книгами", "Новая книга о море"),
    ],
)
async def test_a_query_finds_a_text_with_other_forms_of_its_words(query: str, text: str) -> None:
    assert await Tenant("Nothing of it is here.", text).find(query) == [1]


async def test_characters_that_only_begin_alike_are_not_found() -> None:
    assert await Tenant("東京の天気").find("天文") == []


COMPOUNDS = (
    "Die Donaudampfschifffahrt ist nicht mehr, was sie in Wien war.",
    "Das Donaudampfschiff ist in dem Hafen und wird von uns gestrichen.",
    "Der Dampf ist heiß und wird mit dem Kessel gemacht.",
    "Der Garten ist schön und wird von uns gepflegt.",
)


async def test_compounds_are_found_by_their_beginnings_weaker_than_the_word_itself() -> None:
    assert (await Tenant(*COMPOUNDS).find("Donaudampfschiff"))[:2] == [1, 0]


async def test_a_compound_in_the_query_finds_its_parts() -> None:
    assert sorted(await Tenant(*COMPOUNDS).find("Dampfgarten")) == [2, 3]


async def test_parts_of_compounds_do_not_count_towards_the_full_score() -> None:
    tenant = Tenant(*COMPOUNDS)
    weighed = await weigh_query_forms("Donaudampfschiff", tenant.count_terms)
    assert len(weighed.terms.ids) > 1
    assert weighed.full_score == max(weighed.terms.weights)


async def test_english_texts_are_counted_once_and_have_their_english_stems_only() -> None:
    tenant = Tenant("The donaudampfschifffahrt was a company that ran the ships of the river.")
    assert await tenant.find("companies of the ships") == [0]
    assert len(tenant.requests) == 1
    assert set(tenant.counts) == {term(stem(w)) for w in ("donaudampfschifffahrt", "company", "ran", "ships", "river")}


async def test_a_word_counts_once_whichever_languages_the_tenant_has() -> None:
    texts = ("The better the plan is, the better it will be for us.", "Das Bett ist in dem Zimmer, und der Tisch auch.")
    assert (await Tenant(*texts, *[texts[0]] * 3).find("better"))[0] == 0


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("english", "The ships of the river are not here, and we do not know where they are."),
        ("german", "Die Schiffe sind nicht hier, und wir wissen nicht, wo sie sind."),
        ("french", "Les bateaux ne sont pas ici et nous ne savons pas où ils sont."),
        ("spanish", "Los barcos no están aquí y no sabemos dónde están los marineros."),
        ("italian", "Le barche non sono qui e non sappiamo dove siano i marinai della nave."),
        ("portuguese", "Os barcos não estão aqui e não sabemos onde eles foram com a carga do navio."),
        ("dutch", "De schepen zijn niet hier en wij weten niet waar ze zijn met het geld."),
        ("swedish", "Skeppen är inte här och vi vet inte var de är, men det är inte farligt att vänta."),
        ("finnish", "Laivat eivät ole täällä, ja se on huono asia, että kukaan ei tiedä missä ne ovat."),
        ("hungarian", "A hajók nem itt vannak, és nem tudjuk, hogy hol van a kapitány."),
        ("turkish", "Gemiler burada değil ve bu nasıl oldu, neden böyle bir şey için bekliyoruz."),
        ("polish", "Statki nie są tutaj i nie wiemy, gdzie jest kapitan oraz jego załoga."),
    ],
)
def test_the_language_of_prose_is_recognised(language: str, text: str) -> None:
    assert detect_language(tokens(text)) == language
    assert language in LANGUAGES


@pytest.mark.parametrize("text", ["", "Toyota Corolla 2026", "東京の天気は晴れです", "def f(x): return x + 1"])
def test_texts_without_function_words_have_no_language(text: str) -> None:
    assert detect_language(tokens(text)) is None


@pytest.mark.parametrize(
    ("query", "text", "language", "expected"),
    [
        ("天気", "明日の東京の天気は晴れ", "english", "明日の東京の**天気**は晴れ"),
        ("図書館", "市立図書館では", "english", "市立**図書館**では"),
        ("猫", "我家的猫喜欢", "english", "我家的**猫**喜欢"),
        ("Rechnung", "offene Rechnungen mahnen", "german", "offene **Rechnungen** mahnen"),
        ("Schiff", "die Schifffahrtsgesellschaft", "german", "die **Schifffahrtsgesellschaft**"),
        ("ecole fermee", "Les écoles fermées", "french", "Les **écoles** **fermées**"),
        ("ﾊﾟｿｺﾝ", "新しいパソコン", "english", "新しい**パソコン**"),
        ("パソコン", "新しいﾊﾟｿｺﾝ", "english", "新しい**ﾊﾟｿｺﾝ**"),
    ],
)
def test_snippets_mark_the_words_that_were_found(query: str, text: str, language: str, expected: str) -> None:
    wanted = list_query_forms(query, language)
    assert build_snippet(text, wanted, 200, near=None, highlight=True, language=language) == expected


@pytest.mark.parametrize("language", ["german", "french", "spanish", "japanese", "chinese"])
async def test_written_queries_find_their_documents(language: str) -> None:
    documents, queries = (
        [json.loads(line) for line in (SETS / language / f"{name}.jsonl").read_text("utf-8").splitlines()]
        for name in ("documents", "queries")
    )
    tenant = Tenant(*(each["text"] for each in documents))
    ids = [each["id"] for each in documents]
    found = [[ids[n] for n in await tenant.find(each["query"])] for each in queries]
    first = sum(ranking[:1] == [each["id"]] for ranking, each in zip(found, queries, strict=True))
    assert first / len(queries) >= 0.95
