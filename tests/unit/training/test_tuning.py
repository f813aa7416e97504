"""Tuning, with tiny encoders of random weights."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (requirements/training.txt)")
pytest.importorskip("transformers", reason="transformers is not installed (requirements/training.txt)")

import torch
from safetensors.torch import save_file
from transformers import MPNetConfig, MPNetModel

from tests.fixtures.tiny_encoder import TEXTS, write_tiny_model
from training.batches import Batch, Examples, Pair
from training.encoder import Encoder, average_states
from training.export import FLOAT, export
from training.int8 import round_input, simulate_int8
from training.measure import open_onnx
from training.recipe import Recipe, open_encoder, train
from training.tokens import TextTable
from training.tune import Plan, measure_divergence
from training.weights import CONFIG, WEIGHTS

pytestmark = pytest.mark.filterwarnings("ignore")
torch.set_num_threads(1)  # more than one only hinder each other with matrices this small


@pytest.fixture
def data() -> dict[str, Any]:
    names = ["read the ledger", "write a diary", "send a letter", "paint a fence"]
    tools = [
        {"server": f"s{n % 2}", "name": name, "description": f"You can {name}. It is quick.", "text": f"{name}: quick"}
        for n, name in enumerate(names)
    ]
    return {
        "tools": tools,
        "queries": [[n, f"please {name} number {q}"] for n, name in enumerate(names) for q in range(3)],
        "tasks": [[[0, 1], "read it and write it"]],
        "validation_servers": ["s1"],
        "catalogue": [],
        "operations": [["burn the ledger", [], [0]], ["look at the ledger", [0], [1]]],
        "unlabelled": [[f"could you {name}"] for name in names],
        "passages": [f"A long plain sentence about the number {n} and its many neighbours." for n in range(8)],
        "sets": {},
    }


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny", layers=1)


def recipe(**changes: Any) -> Recipe:
    return Recipe(Plan(steps=3, size=8, rate=1e-3, **changes), seeds=(1, 2))


@pytest.mark.parametrize("int8", [False, True])
def test_the_same_seeds_give_the_same_weights(tiny: Path, data: dict[str, Any], int8: bool) -> None:
    plan = recipe(teacher_weight=1.0, align_weight=1.0, unlabelled=4, near_misses=2, keep_weight=1.0, int8=int8)
    first, second = (train(data, tiny, plan, teacher=tiny).read_state() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = train(data, tiny, Recipe(plan.plan, seeds=(3, 4)), teacher=tiny).read_state()
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_tuning_brings_requests_nearer_to_their_tools(tiny: Path, data: dict[str, Any], tmp_path: Path) -> None:
    train(data, tiny, Recipe(Plan(steps=30, size=8, rate=3e-3), seeds=(1,), original_share=0.0)).save(tmp_path / "out")

    def compare(folder: Path) -> float:
        embed = open_encoder(folder, "cpu")
        cosines = embed([query for _, query in data["queries"]]) @ embed([tool["text"] for tool in data["tools"]]).T
        own = [row[tool] for row, (tool, _) in zip(cosines, data["queries"], strict=True)]
        return float(np.mean(own) - cosines.mean())

    assert compare(tmp_path / "out") > compare(tiny) + 0.1


def test_a_request_that_no_tool_serves_moves_away_from_its_near_miss(
    tiny: Path, data: dict[str, Any], tmp_path: Path
) -> None:
    refused, tool = data["operations"][0][0], data["tools"][0]["text"]
    data["operations"] = data["operations"][:1]

    def compare(near_misses: int) -> float:
        plan = Plan(steps=20, size=8, rate=3e-3, near_misses=near_misses)
        train(data, tiny, Recipe(plan, seeds=(1,), original_share=0.0)).save(tmp_path / str(near_misses))
        first, second = open_encoder(tmp_path / str(near_misses), "cpu")([refused, tool])
        return float(first @ second)

    assert compare(4) < compare(0) - 0.1


def test_near_misses_stand_beside_the_tools_of_a_batch(data: dict[str, Any]) -> None:
    table = TextTable()
    batch = Examples(data, table, 1, validate=False).draw(6, 0, near_misses=40)
    texts = [text for text, _ in table.list()]
    served = [pair for pair in batch.pairs if texts[pair.left] == "look at the ledger"]
    assert {texts[pair.right] for pair in served} == {"read the ledger: quick"}
    assert {texts[number] for number in batch.near_misses} == {"write a diary: quick"}
    assert {tuple(texts[number] for number in pair) for pair in batch.refused} == {
        ("burn the ledger", "read the ledger: quick")
    }
    assert len(served) == len(batch.near_misses) == 40 - len(batch.refused)
    assert list(batch.build_mask().shape) == [len(batch.pairs), len(batch.pairs) + len(batch.near_misses)]


def test_nothing_of_validation_servers_is_trained_on(data: dict[str, Any]) -> None:
    table = TextTable()
    Examples(data, table, 1, validate=True)
    texts = " ".join(text for text, _ in table.list() if "passage" not in text)
    assert "please read the ledger number 0" in texts
    assert "please write a diary" not in texts
    assert "read it and write it" not in texts
    assert "look at the ledger" not in texts  # its near miss is a tool of such a server


def test_tools_that_serve_a_task_too_are_no_counterexamples() -> None:
    batch = Batch([Pair(10, 1, frozenset({1, 2})), Pair(11, 2), Pair(12, 3), Pair(13, 3)])
    assert batch.build_mask().tolist() == [
        [True, False, True, True],
        [True, True, True, True],
        [True, True, True, False],
        [True, True, False, True],
    ]


def test_weights_are_averaged_by_their_shares() -> None:
    states = [{"w": torch.tensor([value]), "n": torch.tensor([7])} for value in (1.0, 3.0, 10.0)]
    mean = average_states(states, [0.4, 0.4, 0.2])
    assert mean["w"].item() == pytest.approx(3.6)
    assert mean["n"].item() == 7


def test_a_divergence_is_zero_from_itself_and_ignores_excluded_pairs() -> None:
    wanted = torch.tensor([[1.0, float("-inf"), 0.5]])
    assert measure_divergence(wanted, wanted).item() == pytest.approx(0.0, abs=1e-6)
    assert measure_divergence(torch.tensor([[0.0, float("-inf"), 2.0]]), wanted).item() > 0.1


def test_a_simulation_of_eight_bits_ends_with_all_bits(tiny: Path) -> None:
    encoder = Encoder(tiny, "cpu")
    before = encoder.read_state()
    with simulate_int8(encoder.model):
        pass
    after = encoder.read_state()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert len(torch.unique(round_input(torch.linspace(-1, 1, 5000).reshape(1, 10, 500)))) <= 256


def test_exports_compute_what_pytorch_computes(tiny: Path, tmp_path: Path) -> None:
    export(tiny, tmp_path / "out", full=True)
    expected = open_encoder(tiny, "cpu")(TEXTS)
    np.testing.assert_allclose(open_onnx(tmp_path / "out", FLOAT)(TEXTS), expected, atol=1e-5)


def test_mpnet_is_exported_too(tiny: Path, tmp_path: Path) -> None:
    torch.manual_seed(1)
    config = MPNetConfig(hidden_size=48, num_hidden_layers=1, intermediate_size=64, vocab_size=30527)
    config.max_position_embeddings = 514
    folder = shutil.copytree(tiny, tmp_path / "mpnet")
    (folder / CONFIG).write_text(config.to_json_string(use_diff=False), encoding="utf-8")
    save_file(MPNetModel(config, add_pooling_layer=False).state_dict(), folder / WEIGHTS)
    export(folder, tmp_path / "out", full=True)
    texts = [*TEXTS, "long " * 200]
    expected = open_encoder(folder, "cpu")(texts)
    np.testing.assert_allclose(open_onnx(tmp_path / "out", FLOAT)(texts), expected, atol=1e-5)
