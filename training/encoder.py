"""An encoder in PyTorch: a transformer, the mean over its tokens, unit length."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional
from transformers import AutoConfig, AutoModel

from training.tokens import TokenTable
from training.weights import CONFIG, TOKENIZER, WEIGHTS

State = Mapping[str, torch.Tensor]
# Texts of similar length run together, so that little is padded.
CHUNK = 2048


class Encoder(torch.nn.Module):
    """Turns texts into vectors. `folder` is where the weights come from."""

    def __init__(self, folder: Path, device: str) -> None:
        super().__init__()
        self.folder, self.device = folder, device
        # The fused kernel is three times as fast on a GPU, and does not give the same numbers twice. MPNet has none.
        config = AutoConfig.from_pretrained(folder, attn_implementation="eager")
        if device == "cuda" and config.model_type == "bert":
            config = AutoConfig.from_pretrained(folder, attn_implementation="sdpa")
        self.model = AutoModel.from_config(config, add_pooling_layer=False).float()
        prefix = f"{config.model_type}."
        weights = {name.removeprefix(prefix): value.float() for name, value in load_file(folder / WEIGHTS).items()}
        own = self.model.state_dict()
        missing = own.keys() - weights.keys() - {"embeddings.position_ids"}
        if missing:
            raise ValueError(f"{folder}: weights are missing: {', '.join(sorted(missing)[:5])}")
        self.model.load_state_dict({name: weights[name] for name in own if name in weights}, strict=False)
        self.to(device)

    def forward(self, table: TokenTable, numbers: torch.Tensor) -> torch.Tensor:
        """One unit vector for each numbered text of the table."""
        order = torch.argsort(table.lengths[numbers], stable=True)
        found = torch.cat([self._embed(*table.batch(numbers[some])) for some in order.split(CHUNK)])
        return found[torch.argsort(order).to(found.device)]

    def _embed(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.device == "cuda"):
            states = self.model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        weights = mask.unsqueeze(-1).float()
        return functional.normalize((states.float() * weights).sum(1) / weights.sum(1), dim=-1)

    @torch.no_grad()
    def embed_table(self, table: TokenTable) -> torch.Tensor:
        """The vectors of all texts of a table, without dropout."""
        was_training = self.training
        self.eval()
        found = self(table, torch.arange(len(table)))
        self.train(was_training)
        return found

    def read_state(self) -> dict[str, torch.Tensor]:
        """A copy of the weights."""
        return {name: value.detach().float().cpu().clone() for name, value in self.model.state_dict().items()}

    def load_state(self, state: State) -> None:
        self.model.load_state_dict(state)

    def save(self, folder: Path, *, half: bool = False) -> None:
        """Writes a folder as the model hub lays it out, of weights with 32 or with 16 bits."""
        folder.mkdir(parents=True, exist_ok=True)
        state = {name: value.half() if half else value for name, value in self.read_state().items()}
        save_file(state, folder / WEIGHTS)
        config = json.loads((self.folder / CONFIG).read_text(encoding="utf-8"))
        (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        shutil.copyfile(self.folder / TOKENIZER, folder / TOKENIZER)


def average_states(states: Sequence[State], weights: Sequence[float]) -> dict[str, torch.Tensor]:
    """The weighted mean of the weights of encoders of one make."""
    total = sum(weights)
    mean: dict[str, torch.Tensor] = {}
    for name, first in states[0].items():
        if first.is_floating_point():
            parts = [share / total * state[name].float() for state, share in zip(states, weights, strict=True)]
            mean[name] = torch.stack(parts).sum(0)
        else:
            mean[name] = first
    return mean
