"""Token ids of many texts, computed once: tokenising in every step would take longer than the step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer

from training.weights import TOKENIZER


class TextTable:
    """Distinct texts, each with a number and the tokens after which it is cut."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int], int] = {}

    def add(self, text: str, tokens: int) -> int:
        """The number of the text."""
        return self._numbers.setdefault((text, tokens), len(self._numbers))

    def list(self) -> list[tuple[str, int]]:
        """The texts and their tokens, by number."""
        return list(self._numbers)


class TokenTable:
    """The token ids of a table's texts, padded, on the device."""

    def __init__(self, texts: Sequence[tuple[str, int]], folder: Path, device: str) -> None:
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        tokenizer.no_padding()
        rows: list[list[int]] = [[]] * len(texts)
        for tokens in {tokens for _, tokens in texts}:
            tokenizer.enable_truncation(tokens)
            chosen = [number for number, (_, each) in enumerate(texts) if each == tokens]
            found = tokenizer.encode_batch([texts[number][0] for number in chosen])
            for number, each in zip(chosen, found, strict=True):
                rows[number] = each.ids
        self.lengths = torch.tensor([len(row) for row in rows])
        ids = torch.zeros(len(rows), int(self.lengths.max()), dtype=torch.int32)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = torch.tensor(row, dtype=torch.int32)
        self.ids, self.device = ids.to(device), device

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and mask of some texts, as wide as the longest."""
        lengths = self.lengths[numbers]
        ids = self.ids[numbers.to(self.device), : int(lengths.max())].long()
        mask = torch.arange(ids.shape[1], device=self.device) < lengths.to(self.device).unsqueeze(1)
        return ids, mask
