"""Recognises the language of a text in Latin letters by its function words: they make up a third of any prose.

No model and no n-grams: a table of 14 to 45 folded words per language tells the languages that have a stemmer apart, in
microseconds. Other scripts need no recognition: the letters choose the stemmer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from toolscript.retrieval.text.words import ENGLISH, STOP_WORDS

_FUNCTION_WORDS = {
    "german": """
        der die das den dem des ein eine einen einem einer eines und oder aber nicht auch noch nur ist sind war waren
        wird werden wurde wurden hat haben hatte kann konnen muss soll sich mit von vom zu zum zur bei beim auf aus nach
        uber unter durch fur gegen ohne um im am als wie wenn dass weil ich du er sie es wir ihr man was wer wo wann
        welche welcher welches mein meine dein sein seine ihre unser bis seit vor zwischen sehr mehr schon dann doch
    """,
    "french": """
        le la les un une des du de et ou mais ne pas plus est sont etait etaient sera ont avait dans sur sous avec sans
        pour par aux au ce cet cette ces qui que quoi dont ou quand comment pourquoi quel quelle quels quelles je tu il
        elle nous vous ils elles on se sa son ses leur leurs mon ma mes notre votre ete etre avoir fait tres aussi
        comme si chez entre vers depuis lors l d qu n s c j
    """,
    "spanish": """
        el la los las un una unos unas y o pero no mas es son era eran fue fueron ha han habia en sobre con sin para por
        al del de que quien cual cuales como cuando donde porque se su sus mi mis tu tus nos les le lo yo ella nosotros
        ellos este esta estos estas ese esa eso muy tambien ya entre desde hasta hay ser estar
    """,
    "italian": """
        il lo la gli le un uno una e o ma non piu e sono era erano fu ha hanno aveva in su con senza per da dal dalla
        dai delle della del dei degli di che chi cui quale quali come quando dove perche si suo sua suoi sue mio mia
        nel nella nei nelle sul sulla al alla ai alle questo questa questi queste quello anche molto tra fra essere
    """,
    "portuguese": """
        o os as um uma uns umas e ou mas nao mais sao era eram foi foram ha tem em sobre com sem para por pelo pela ao
        aos do da dos das de que quem qual quais como quando onde porque se seu sua seus suas meu minha nos ele ela eles
        elas este esta isso muito tambem ja entre desde ate ser estar no na nas
    """,
    "dutch": """
        de het een en of maar niet ook nog is zijn was waren wordt worden werd heeft hebben had kan kunnen moet met van
        tot te bij op uit naar over onder door voor tegen zonder om in aan als hoe wat wie waar wanneer dat die deze dit
        ik jij hij zij wij ze we je er zich haar hun mijn uw onze veel meer dan toch wel geen
    """,
    "swedish": """
        och att det som en ett den de pa av for med till fran inte ar var har hade kan ska skulle om men eller ocksa
        nar hur vad vem dar har jag du han hon vi ni sig sin sitt sina min mitt deras detta denna dessa efter under
        over mellan mycket
    """,
    "danish": """
        og at det som en et den de pa af for med til fra ikke er var har havde kan skal skulle om men eller ogsa nar
        hvordan hvad hvem hvor jeg du han hun vi sig sin sit sine min mit deres dette denne disse efter under over
        mellem meget blev bliver
    """,
    "norwegian": """
        og at det som en et den de pa av for med til fra ikke er var har hadde kan skal skulle om men eller ogsa nar
        hvordan hva hvem hvor jeg du han hun vi seg sin sitt sine min mitt deres dette denne disse etter under over
        mellom mye ble blir
    """,
    "finnish": """
        ja on ei se etta oli ovat olivat joka jotka kun myos mutta tai kuin niin han he me te mina sina tama tassa
        nama ne sen siita mita miksi missa milloin miten hanen ole olla ollut vain jos kanssa ennen
    """,
    "hungarian": """
        a az es egy nem is hogy volt van vannak lesz de ha meg mint csak mar ez ezt azt ennek annak aki amely ami
        hol mikor miert mit kell lehet minden utan alatt kozott
    """,
    "romanian": """
        si in la cu pe de din nu este sunt era erau fost va vor ca sa se care cand cum unde ce un o unui unei al ale
        lui ei lor mai dar sau pentru prin dupa intre fara acest aceasta aceste foarte
    """,
    "turkish": """
        ve bir bu su ile icin da de ki mi ne var yok degil cok daha gibi kadar sonra once ama veya hem olarak olan
        oldu nasil neden nerede kim hangi her ben sen biz siz onlar onun bunun
    """,
    "polish": """
        i w na z ze do nie sie jest sa byl byla bylo byly to jak co kto gdzie kiedy oraz lub ale przez dla od po przy
        pod nad o za ten ta te tego tej jego jej ich juz tylko tak czy moze
    """,
    "czech": """
        a v na z ze do se si je jsou byl byla bylo byly to jak co kdo kde kdy nebo ale pro od po pri pod nad o za ten
        ta ti toho jeho jeji jejich uz jen tak ktery ktera ktere take podle
    """,
    "indonesian": """
        yang dan di ke dari ini itu untuk dengan pada tidak adalah akan telah sudah oleh juga dalam sebagai atau karena
        ada apa siapa bagaimana kapan mereka kami kita saya anda
    """,
}

COMPOUNDING = ("german", "dutch", "swedish", "danish", "norwegian", "finnish", "hungarian")
"""Languages that write compounds as one word."""

LANGUAGES = (ENGLISH, *_FUNCTION_WORDS)
_ENGLISH_WORDS = frozenset(filter(str.isascii, STOP_WORDS))
_WORDS_OF = {ENGLISH: _ENGLISH_WORDS} | {name: frozenset(text.split()) for name, text in _FUNCTION_WORDS.items()}
UNINFORMATIVE = {name: STOP_WORDS | function_words for name, function_words in _WORDS_OF.items()}
"""The words of each language that no search looks for, with those of English."""

SAMPLE = 250
"""Words read at the beginning of a text, and as many in its middle."""
# Prose has a third of function words; lists, tables and code of any language have fewer.
MIN_SHARE = 0.08
# English prose has more than twice this share of function words, other languages have half of it by coincidence.
ENGLISH_SHARE = 0.2
MIN_DIFFERENT = 2
# How far the best language must be ahead of the second.
LEAD = 1.25


def _share_words() -> dict[str, tuple[tuple[str, float], ...]]:
    """The languages of each function word, with its weight: a word of many languages tells little."""
    owners: dict[str, list[str]] = {}
    for name, function_words in _WORDS_OF.items():
        for word in function_words:
            owners.setdefault(word, []).append(name)
    return {word: tuple((name, 1 / len(names)) for name in names) for word, names in owners.items()}


_OWNERS = _share_words()


def detect_language(text_tokens: Sequence[str]) -> str | None:
    """The language of a text's folded words; None if there are too few function words to tell."""
    sample = text_tokens
    if len(text_tokens) > 2 * SAMPLE:
        middle = len(text_tokens) // 2
        sample = [*text_tokens[:SAMPLE], *text_tokens[middle : middle + SAMPLE]]
    if sample and sum(map(_ENGLISH_WORDS.__contains__, sample)) >= max(3, ENGLISH_SHARE * len(sample)):
        return ENGLISH
    scores: dict[str, float] = {}
    hits: Counter[str] = Counter()
    for word, times in Counter(sample).items():
        for name, weight in _OWNERS.get(word, ()):
            scores[name] = scores.get(name, 0.0) + times * weight
            hits[name] += 1
    if not scores:
        return None
    best, second = (*sorted(scores, key=scores.__getitem__, reverse=True), "")[:2]
    is_ahead = scores[best] >= LEAD * scores.get(second, 0.0)
    return best if is_ahead and hits[best] >= MIN_DIFFERENT and scores[best] >= MIN_SHARE * len(sample) else None
