"""Every way of writing a name gives the same words, and stored term numbers never change."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.retrieval.text.words import (
    LARGEST_TERM,
    STOP_WORDS,
    find_tokens,
    split_identifier,
    stems,
    term,
    term_frequencies,
    tokens,
    words,
)

quick = settings(max_examples=scale_examples(200), deadline=None)


@pytest.mark.req("S-02")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("read_file", "read file"),
        ("read-file", "read file"),
        ("readFile", "read File"),
        ("ReadFile", "Read File"),
        ("READ_FILE", "READ FILE"),
        ("read.file/now:then", "read file now then"),
        ("__read__file__", "read file"),
        ("parseHTMLDocument", "parse HTML Document"),
        ("HTTPServer2", "HTTP Server2"),
        ("getURL", "get URL"),
        ("s3Bucket", "s3 Bucket"),
        ("v2API", "v2 API"),
        ("list2", "list2"),
        ("überPrüfen", "über Prüfen"),
        ("caféBar", "café Bar"),
        ("读取_文件", "读取 文件"),
        ("прочитать_файл", "прочитать файл"),
        ("", ""),
        ("_-./", ""),
    ],
)
def test_an_identifier_is_split_into_its_words_with_case_and_accents_kept(name: str, expected: str) -> None:
    assert split_identifier(name) == expected


@pytest.mark.req("S-02")
@pytest.mark.parametrize(
    "written", ["read_file", "read-file", "readFile", "ReadFile", "READ_FILE", "read file", "Read.File", "«read» file!"]
)
def test_every_way_of_writing_a_name_gives_the_same_words(written: str) -> None:
    assert words(written) == ["read", "file"]


@pytest.mark.req("S-02")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("parseHTMLDocument", ["parse", "html", "document"]),
        ("HTTPServer2", ["http", "server2"]),
        ("Crème brûlée à Zürich", ["creme", "brulee", "a", "zurich"]),
        ("Straße", ["strasse"]),
        ("ｆｕｌｌ　ｗｉｄｔｈ ﬁle", ["full", "width", "file"]),
        ("读取文件，然后写入", ["读取文件", "然后写入"]),
        ("Прочитать ФАЙЛ", ["прочитать", "фаил"]),
        ("the quick-fix", ["the", "quick", "fix"]),
        ("", []),
        (" \t\n_-—…!", []),
    ],
)
def test_words_are_folded_and_in_order_with_stop_words_kept(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.req("S-02")
@pytest.mark.parametrize("word", ["école", "über", "créer", "año", "меню", "ηχώ"])
def test_a_word_in_capitals_is_the_same_word(word: str) -> None:
    assert words(word.upper()) == words(word)


@pytest.mark.req("S-02")
@pytest.mark.parametrize(
    ("camel", "snake"), [("créerÉlément", "créer_élément"), ("читатьФайл", "читать_файл"), ("caféÉcole", "café_école")]
)
def test_a_capital_with_an_accent_or_of_another_alphabet_starts_a_word(camel: str, snake: str) -> None:
    assert words(camel) == words(snake)


@pytest.mark.req("S-02")
@pytest.mark.parametrize("text", ["caféBar", "überPrüfen", "Crème brûlée", "й"])
def test_accents_may_be_written_as_one_character_or_two(text: str) -> None:
    split = unicodedata.normalize("NFD", text)
    assert words(split) == words(text)
    assert unicodedata.normalize("NFC", split_identifier(split)) == split_identifier(text)


@pytest.mark.req("S-02")
@quick
@given(st.text(max_size=40))
def test_splitting_words_again_changes_nothing(text: str) -> None:
    once = words(text)
    assert words(" ".join(once)) == once
    assert words(split_identifier(split_identifier(text))) == words(split_identifier(text))


@pytest.mark.req("S-02")
@quick
@given(st.lists(st.from_regex(r"[a-z]{2,8}", fullmatch=True), min_size=1, max_size=4))
def test_snake_kebab_dots_and_camel_agree_on_any_words(parts: list[str]) -> None:
    camel = parts[0] + "".join(p.capitalize() for p in parts[1:])
    for written in ("_".join(parts), "-".join(parts), ".".join(parts), "_".join(parts).upper(), camel):
        assert words(written) == parts


@pytest.mark.req("S-02")
def test_forms_of_a_word_share_a_stem_and_stop_words_are_dropped() -> None:
    assert stems("Reading the files") == stems("read file") == stems("readFiles") == ["read", "file"]


@pytest.mark.req("S-02")
def test_a_text_of_only_stop_words_keeps_them() -> None:
    assert stems("to be or not to be") == ["to", "be", "or", "not", "to", "be"]
    assert stems("") == []
    assert set(words(" ".join(STOP_WORDS))) == STOP_WORDS


@pytest.mark.req("S-02")
def test_other_scripts_keep_their_stems() -> None:
    assert stems("读取 文件") == ["读取", "文件"]


@pytest.mark.req("F-03")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("東京の天気", "東京 の 天気"),
        ("图书馆", "图书 书馆"),
        ("猫が好き", "猫 が 好 き"),
        ("AI技術2026年", "ai 技術 2026 年"),
        ("ﾊﾟｿｺﾝ", "パソ ソコ コン"),
        ("データ", "デー ータ"),
        ("한국어 날씨", "한국 국어 날씨"),
        ("สวัสดี", "สวั วัส สดี"),
        ("भाषाओं में", "भाषाओं में"),
        ("Donau\u00addampf ｃａｆé", "donaudampf cafe"),
    ],
)
def test_scripts_without_spaces_are_cut_into_pairs_of_characters(text: str, expected: str) -> None:
    assert tokens(text) == expected.split()


@pytest.mark.req("F-03")
def test_words_of_other_alphabets_are_stemmed() -> None:
    assert stems("книги") == stems("книгами")
    assert stems("الكتاب") == stems("كتاب")
    assert stems("δρόμοι") == stems("δρόμος")


@pytest.mark.req("F-03")
@quick
@given(st.lists(st.sampled_from(["a", "É", " ", "東", "京", "の", "カ", "が", "ﾊﾟ", "한", "ดี", "1", "_"]), max_size=20))
def test_the_places_of_tokens_are_where_they_are_written(characters: list[str]) -> None:
    for word in "".join(characters).split():
        places = list(find_tokens(word))
        assert all(0 <= first < last <= len(word) for first, last in places)
        assert {t for first, last in places for t in tokens(word[first:last])} >= set(tokens(word))


def test_term_numbers_never_change_because_stores_contain_them() -> None:
    assert [term("file"), term("read"), term("文件"), term("")] == [359_244_430, 555_855_333, 570343285, 0]


@quick
@given(st.text(max_size=20))
def test_a_term_number_is_within_the_range_of_every_engine(stem: str) -> None:
    assert 0 <= term(stem) < LARGEST_TERM < 10**9


def test_frequencies_count_stems_and_not_spellings() -> None:
    assert term_frequencies("read the files, reading") == {term("read"): 2, term("file"): 1}
    assert term_frequencies("...") == {}


@pytest.mark.req("S-02")
@quick
@given(st.text(alphabet="aZ0_ -é", max_size=12))
def test_ascii_letters_are_split_like_accented_ones(text: str) -> None:
    assert words(text) == words(text + " é")[: len(words(text))]
