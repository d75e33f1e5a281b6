"""The BiLSTM that learns a transformer's answers (Distilled-BiLSTM)."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from trimaran.core.bilstm_config import CONFIG, WEIGHTS, BiLstmConfig
from trimaran.core.errors import IntegrityError

_LOW = -1e9


class BiLstm(torch.nn.Module):
    """Token vectors, one BiLSTM, their mean and maximum over a text, two layers. Padding is not read.

    It answers as its teacher's complete module does: finished vectors, logits, or probabilities of independent labels.
    """

    def __init__(self, config: BiLstmConfig) -> None:
        super().__init__()
        self.config = config
        self.table = torch.nn.Embedding(config.vocabulary, config.table)
        self.lstm = torch.nn.LSTM(config.table, config.hidden, batch_first=True, bidirectional=True)
        self.dense = torch.nn.Linear(4 * config.hidden, config.dense)
        self.out = torch.nn.Linear(config.dense, config.width)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        # A text without any token is read as one token of padding.
        lengths = attention_mask.sum(dim=1).clamp(min=1)
        packed = pack_padded_sequence(self.table(input_ids), lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        # PyTorch gives as many places as the longest text has; a graph gives all.
        real = attention_mask[:, : states.shape[1]].unsqueeze(-1).to(states.dtype)
        mean = (states * real).sum(dim=1) / lengths.unsqueeze(-1).to(states.dtype)
        most = (states * real + (1 - real) * _LOW).amax(dim=1).clamp(min=-1.0)
        answers: torch.Tensor = self.out(torch.relu(self.dense(torch.cat([mean, most], dim=-1))))
        if self.config.unit_length:
            return torch.nn.functional.normalize(answers, p=2.0, dim=-1)
        return answers.sigmoid() if self.config.activation == "sigmoid" and self.config.labels else answers


def write_bilstm(student: BiLstm, folder: Path) -> None:
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(student.config.to_json(), encoding="utf-8")
    weights = {name: weight.detach().contiguous() for name, weight in student.state_dict().items()}
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def read_bilstm(folder: Path) -> BiLstm:
    """Raises IntegrityError for weights that are missing, damaged or do not fit the config."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    student = BiLstm(BiLstmConfig.read(folder / CONFIG))
    try:
        student.load_state_dict(load_file(folder / WEIGHTS))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise IntegrityError(
            f"{folder / WEIGHTS} does not hold the weights of the student: {reason}", hint=BiLstmConfig.remedy
        ) from error
    student.eval()
    return student
