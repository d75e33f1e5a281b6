"""A bidirectional-LSTM language-model encoder in the manner of ELMo, as a user would bring it with --module."""

from __future__ import annotations

from typing import Any

import torch

from tests.export import zoo

CHARACTERS, LONGEST, WIDTH = 64, 12, 16


class ElmoLike(torch.nn.Module):
    """Characters of each token, a convolution over them, two BiLSTM layers, a weighted sum of all three."""

    def __init__(self, spelling: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("spelling", spelling)
        self.characters = torch.nn.Embedding(CHARACTERS, 8, padding_idx=0)
        self.convolution = torch.nn.Conv1d(8, 2 * WIDTH, kernel_size=3, padding=1)
        self.forwards = torch.nn.ModuleList(torch.nn.LSTM(2 * WIDTH, WIDTH, batch_first=True) for _ in range(2))
        self.backwards = torch.nn.ModuleList(torch.nn.LSTM(2 * WIDTH, WIDTH, batch_first=True) for _ in range(2))
        self.weights = torch.nn.Parameter(torch.tensor([0.2, -0.1, 0.5]))
        self.scale = torch.nn.Parameter(torch.tensor(1.3))

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        letters = self.characters(self.spelling[input_ids])
        batch, sequence = input_ids.shape
        flat = letters.reshape(batch * sequence, LONGEST, 8).transpose(1, 2)
        layers = [torch.relu(self.convolution(flat)).amax(-1).reshape(batch, sequence, 2 * WIDTH)]
        turned = self._turned(attention_mask)
        for ahead, back in zip(self.forwards, self.backwards, strict=True):
            states = layers[-1]
            there = ahead(states)[0]
            # A row is read backwards from its own end, so that padding is never read before it.
            reverse = turned.unsqueeze(-1).expand(-1, -1, states.shape[-1])
            again = turned.unsqueeze(-1).expand(-1, -1, WIDTH)
            layers.append(torch.cat([there, back(states.gather(1, reverse))[0].gather(1, again)], dim=-1))
        shares = torch.softmax(self.weights, dim=0)
        return self.scale * sum(share * layer for share, layer in zip(shares, layers, strict=True))

    @staticmethod
    def _turned(mask: torch.Tensor) -> torch.Tensor:
        places = mask.cumsum(1) - 1
        lengths = mask.sum(1, keepdim=True)
        return torch.where(mask > 0, lengths - 1 - places, torch.ones_like(mask).cumsum(1) - 1)


def build() -> tuple[torch.nn.Module, Any, dict[str, torch.Tensor]]:
    """What `--module tests.export.elmo:build` calls."""
    vocabulary = zoo.wordpiece_vocabulary()
    spelling = torch.zeros(len(vocabulary), LONGEST, dtype=torch.int64)
    for token, index in vocabulary.items():
        for place, letter in enumerate(token[:LONGEST]):
            spelling[index, place] = 1 + ord(letter) % (CHARACTERS - 1)
    torch.manual_seed(5)
    example = {"input_ids": torch.tensor([[2, 9, 9, 3]]), "attention_mask": torch.ones(1, 4, dtype=torch.int64)}
    return ElmoLike(spelling), zoo.tokenizer_of("wordpiece"), example


def build_with_words() -> tuple[torch.nn.Module, Any, dict[str, torch.Tensor]]:
    module, tokenizer, _ = build()
    return module, tokenizer, {"words": torch.zeros(1, 4, dtype=torch.int64)}


def build_another_each_time() -> tuple[torch.nn.Module, Any, dict[str, torch.Tensor]]:
    module, tokenizer, example = build()
    torch.seed()
    torch.nn.init.normal_(module.scale)
    return module, tokenizer, example


def build_nothing() -> None:
    return None


class Convolved(torch.nn.Module):
    """A convolution with a batch norm behind it: its running statistics are buffers, not parameters."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(vocabulary, WIDTH)
        self.convolution = torch.nn.Conv1d(WIDTH, WIDTH, kernel_size=1)
        self.norm = torch.nn.BatchNorm1d(WIDTH)
        torch.nn.init.normal_(self.norm.running_mean)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.norm(self.convolution(self.table(input_ids).transpose(1, 2))).transpose(1, 2)


def build_with_batch_norm() -> tuple[torch.nn.Module, Any, dict[str, torch.Tensor]]:
    _, tokenizer, example = build()
    torch.manual_seed(6)
    return Convolved(len(tokenizer)).eval(), tokenizer, example
