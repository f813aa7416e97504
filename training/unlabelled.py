"""Makes requests without a label, for a teacher to compare with tools: of names, descriptions and tasks."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

MIN_WORDS, MAX_WORDS = 3, 30
MAX_SENTENCES = 3
OPENINGS = (
    "{}",
    "please {}",
    "can you {}?",
    "I need to {}",
    "how do I {}",
    "I'd like to {}",
    "help me {}",
    "next step: {}",
    "{} for me",
)
# "Returns the …", "Lists all …": such verbs begin descriptions, a request has them without the s.
THIRD_PERSON = re.compile(r"^([A-Z][a-z]{2,}?)(es|(?<!s)s) ")


def make_requests(tool: Mapping[str, str], source: random.Random) -> list[str]:
    """Texts like requests for a tool: its name with an opening, its first sentence with one, other sentences as they
    are."""
    sentences = cut_sentences(tool["description"])
    made = [_open(tool["plain_name"].lower(), source)]
    if sentences:
        made.append(_open(_command(sentences[0]), source))
        made += source.sample(sentences[1:], min(MAX_SENTENCES - 1, len(sentences) - 1))
    return list(dict.fromkeys(made))


def cut_sentences(text: str) -> list[str]:
    """The sentences of a text that are neither very short nor very long."""
    parts = re.split(r"(?<=[.!?])\s+|\n+", text)
    plain = [re.sub(r"[*`#]+", "", part).strip(" -•\t") for part in parts]
    return [part for part in plain if MIN_WORDS <= len(part.split()) <= MAX_WORDS]


def _command(sentence: str) -> str:
    """A sentence as a command, if it begins like the description of a function."""
    found = THIRD_PERSON.match(sentence)
    if found:
        stem = found[1] + ("e" if found[2] == "es" and not found[1].endswith(("s", "sh", "ch", "x")) else "")
        sentence = f"{stem} {sentence[found.end() :]}"
    return (sentence[:1].lower() + sentence[1:]).rstrip(".")


def _open(text: str, source: random.Random) -> str:
    return source.choice(OPENINGS).format(text)
