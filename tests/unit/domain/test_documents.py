"""Documents: limits, and errors that name the field."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from toolscript.domain.documents import Document, check_document, check_identifiers
from toolscript.domain.errors import Invalid, InvalidArguments

pytestmark = pytest.mark.req("D-09", "X-03")

TEXT = "Some text"


@pytest.mark.parametrize(
    "document",
    [
        Document("a", "x"),
        Document("ü/\U0001f600 " + "i" * 504, TEXT, "t" * 1_000),
        Document("a", "x" * 10_000_000),
        Document("a", "tabs\tand\nlines\r\n"),
        Document("a", TEXT, metadata={f"f{n}": n for n in range(100)}),
        Document("a", TEXT, metadata={"n" * 128: "v" * 10_000, "my field.x[0]": ["a", 1, 0.5, True]}),
        Document("a", TEXT, metadata={"list": [1] * 1_000, "none of it": [], "tuple": ("a",), "large": -(2**53)}),
    ],
)
def test_a_valid_document_passes(document: Document) -> None:
    check_document(document)


@pytest.mark.parametrize(
    ("document", "field", "message"),
    [
        (Document("", TEXT), "id", "has 0 bytes"),
        (Document("i" * 513, TEXT), "id", "has 513 bytes"),
        (Document("\U0001f600" * 129, TEXT), "id", "has 516 bytes"),
        (Document("a\nb", TEXT), "id", "control character"),
        (Document("a\x7f", TEXT), "id", "control character"),
        (Document("a\ud800", TEXT), "id", "half a surrogate pair"),
        (Document("a", TEXT, "t" * 1_001), "title", "has 1,001 characters"),
        (Document("a", TEXT, "\udfff"), "title", "half a surrogate pair"),
        (Document("a", TEXT, "a\0b"), "title", "null character"),
        (Document("a", ""), "text", "is blank"),
        (Document("a", " \n\t"), "text", "is blank"),
        (Document("a", "x" * 10_000_001), "text", "has 10,000,001 characters"),
        (Document("a", "x\ud83d"), "text", "half a surrogate pair"),
        (Document("a", "x\0"), "text", "null character"),
        (Document("a", TEXT, metadata={f"f{n}": n for n in range(101)}), "metadata", "has 101 fields"),
        (
            Document("a", TEXT, metadata={f"f{n}": "ü" * 5_000 for n in range(7)}),
            "metadata",
            "has 70,070 bytes as JSON",
        ),
        (
            Document("a", "x" * 2_000_000, metadata={f"f{n}": "v" * 10_000 for n in range(4)}),
            "metadata",
            "has 40,040 bytes as JSON, and each of the text's 2,001 or so passages has a copy of it",
        ),
    ],
)
def test_an_invalid_field_is_named(document: Document, field: str, message: str) -> None:
    with pytest.raises(Invalid, match=message) as refused:
        check_document(document)
    assert refused.value.details["field"] == field
    assert refused.value.details["allowed"] in refused.value.message
    json.dumps(refused.value.to_envelope()).encode()
    refused.value.details["document_id"].encode()


@pytest.mark.parametrize("name", ["", "n" * 129, 'a"b', "a\\b", "a\nb", "\x85", "\ud800"])
def test_a_name_that_filters_cannot_express_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match="names of 1 to 128 characters without double quotes"):
        check_document(Document("a", TEXT, metadata={name: 1}))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "contains null; allowed: a string, a number, a boolean"),
        ({"a": 1}, "contains a value of type dict"),
        ([["a"]], "contains a list inside a list"),
        ([1, None], "contains null"),
        (math.nan, "out of range"),
        (math.inf, "out of range"),
        (2**53 + 1, "at most 2\\^53"),
        (-(10**400), "at most 2\\^53"),
        ("v" * 10_001, "has 10,001 characters"),
        ("\ud800", "half a surrogate pair"),
        (["fine", "a\0"], "null character"),
        ([1] * 1_001, "is a list of 1,001"),
    ],
)
def test_a_value_that_filters_cannot_compare_is_refused(value: Any, message: str) -> None:
    with pytest.raises(Invalid, match=message) as refused:
        check_document(Document("a", TEXT, metadata={"fine": 1, "odd": value}))
    assert refused.value.details["field"] == "metadata.odd"


@pytest.mark.parametrize("odd", ["a\0b", "\ud800"])
def test_an_id_that_no_store_can_look_up_is_refused(odd: str) -> None:
    check_identifiers(tenant="acme", id="ü", after=None)
    with pytest.raises(InvalidArguments, match=r"after .* contains a null character or half") as refused:
        check_identifiers(tenant="acme", after=odd)
    assert refused.value.details["field"] == "after"
    json.dumps(refused.value.to_envelope(), ensure_ascii=False).encode()


def test_different_documents_have_different_digests() -> None:
    others = [
        Document("a", "y", "t", {"n": 1}),
        Document("a", "x", "u", {"n": 1}),
        Document("a", "x", "t", {"n": 1.0}),
        Document("a", "x", "t", {"n": True}),
        Document("a", "x", "t", {"n": "1"}),
        Document("a", "x", "t", {"n": [1]}),
        Document("a", "x", "t"),
    ]
    assert len({d.digest for d in [*others, Document("a", "x", "t", {"n": 1})]}) == 8
    assert Document("a", "x", "t", {"n": 1, "m": 2}).digest == Document("b", "x", "t", {"m": 2, "n": 1}).digest
