"""The most that is read of one answer, by kind, and how it is counted after decompression. More is an error, and
reading stops."""

from __future__ import annotations

# An error has a sentence and a code.
MAX_ERROR_BYTES = 2**20
# Metadata, a registered client or tokens: the largest that are known have 20 kB.
MAX_OAUTH_BYTES = 2**20
# 100 RSA keys with their certificates have 500 kB.
MAX_KEY_SET_BYTES = 10**6
# Requests allow at most 4 000 tokens.
MAX_CHAT_BYTES = 10**6
# A batch of 128 vectors with 8 192 numbers of 22 characters has 23 MB.
MAX_EMBEDDINGS_BYTES = 32 * 2**20
# 500 scores have 50 kB; some services repeat the passages.
MAX_RERANK_BYTES = 8 * 2**20
# The description of an API: the largest of 2 600 public ones has 47 MB, the next 20.
MAX_DOCUMENT_BYTES = 64 * 2**20
# 100 entries of a registry of servers have 150 kB.
MAX_REGISTRY_PAGE_BYTES = 16 * 2**20

# What lists, objects and their values need in memory, whatever few bytes they are written with. An answer of 60 MB that
# consists of `[],` would take 3.6 GB, and 20 s of the event loop.
PART_BYTES = 128
VALUE_BYTES = 8
# Needed without harm, whatever the bound is.
MIN_MEMORY_BYTES = 16 * 2**20

# Within one origin: a slash at the end, then another path. More is a circle.
MAX_REDIRECTS = 5


class AnswerSize:
    """The size of an answer that arrives in parts."""

    def __init__(self) -> None:
        self._length = self._memory = 0

    def add(self, part: bytes) -> None:
        """Counts a part. Brackets and commas in strings count, too: to leave them out takes longer than to read the
        answer."""
        self._length += len(part)
        parts = part.count(b"[") + part.count(b"{")
        self._memory += len(part) + PART_BYTES * parts + VALUE_BYTES * part.count(b",")

    def exceeds(self, max_bytes: int) -> bool:
        """Whether it is longer than the bound, or needs more memory."""
        return self._length > max_bytes or self._memory > max(max_bytes, MIN_MEMORY_BYTES)
