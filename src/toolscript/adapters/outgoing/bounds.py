"""The most that is read of one answer, by kind, and how it is counted after decompression. More is an error, and
reading stops."""

from __future__ import annotations

# An error has a sentence and a code.
MAX_ERROR_BYTES = 2**20
# Metadata, a registered client or tokens: the largest that are known have 20 kB.
MAX_OAUTH_BYTES = 2**20
# 100 RSA keys with their certificates have 500 kB.
MAX_KEY_SET_BYTES = 10**6
# The longest answer that is asked for has 4 000 tokens.
MAX_CHAT_BYTES = 10**6
# A batch of 128 vectors with 8 192 numbers of 22 characters has 23 MB.
MAX_EMBEDDINGS_BYTES = 32 * 2**20
# 500 scores have 50 kB; some services repeat the passages.
MAX_RERANK_BYTES = 8 * 2**20

# What lists, objects and their values need in memory, whatever few bytes they are written with. An answer of 60 MB that
# consists of `[],` would take 3.6 GB, and 20 s of the event loop.
PART_BYTES = 128
VALUE_BYTES = 8

# Within one origin: a slash at the end, then another path. More is a circle.
MAX_REDIRECTS = 5


def measure_json(content: bytes) -> int:
    """The bytes that count for a bound: those that are read, or what they need in memory if that is more. Brackets and
    commas in strings count, too: to find out takes longer than to read the answer."""
    parts = content.count(b"[") + content.count(b"{")
    return len(content) + PART_BYTES * parts + VALUE_BYTES * content.count(b",")
