"""Texts to a served model and its answers back, over gRPC or HTTP."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from trimaran.errors import NotReady, Overloaded, RequestFailed, ServerError, TimedOut, UnavailableError, UsageError
from trimaran.runtime.text import Text

Protocol = Literal["grpc", "http"]
DEFAULT_URLS: dict[Protocol, str] = {"grpc": "127.0.0.1:8001", "http": "127.0.0.1:8000"}
Embeddings = npt.NDArray[np.float32]
Ranking = list[tuple[str, float]]


@dataclass(frozen=True)
class _Model:
    max_batch_size: int
    outputs: dict[str, tuple[int, ...]]


class Client:
    """A connection to one Triton; a context manager. `timeout_s` bounds each request, not the whole call."""

    def __init__(self, url: str = "", *, protocol: Protocol = "grpc", timeout_s: float = 60.0) -> None:
        if protocol not in DEFAULT_URLS:
            raise UsageError(f"Unknown protocol {protocol!r}.", hint="Use grpc or http.")
        self.url = (url or DEFAULT_URLS[protocol]).split("://", 1)[-1].rstrip("/")
        self.protocol = protocol
        self._timeout_s = timeout_s
        self._models: dict[str, _Model] = {}
        try:
            self._library: Any = importlib.import_module(f"tritonclient.{protocol}")
        except ImportError as error:
            raise UnavailableError(
                f"Asking a server wants tritonclient with {protocol}: {error}.",
                hint="pip install 'trimaran[triton]' -c constraints.txt",
            ) from error
        timeouts = {"connection_timeout": timeout_s, "network_timeout": timeout_s} if protocol == "http" else {}
        self._connection: Any = self._library.InferenceServerClient(self.url, **timeouts)

    def embed(self, name: str, texts: Sequence[Text]) -> Embeddings:
        """One row a text, in the order of the texts."""
        model = self._wanted(name, "EMBEDDING")
        parts = [answer["EMBEDDING"] for answer in self._answers(name, model, texts, ("EMBEDDING",))]
        return np.concatenate(parts) if parts else np.empty((0, *model.outputs["EMBEDDING"]), np.float32)

    def classify(self, name: str, texts: Sequence[Text]) -> list[Ranking]:
        """Every label with its probability, most probable first."""
        model = self._wanted(name, "LABELS")
        return [
            [(label.decode("utf-8"), float(score)) for label, score in zip(labels, scores, strict=True)]
            for answer in self._answers(name, model, texts, ("LABELS", "SCORES"))
            for labels, scores in zip(answer["LABELS"], answer["SCORES"], strict=True)
        ]

    def query(self, name: str, texts: Sequence[Text]) -> Embeddings | list[Ranking]:
        """What the model is for: vectors from an embedding model, rankings from a classifier."""
        if "EMBEDDING" in self._model(name).outputs:
            return self.embed(name, texts)
        return self.classify(name, texts)

    def models(self) -> tuple[str, ...]:
        """The models that are ready."""
        found = self._call(self._connection.get_model_repository_index, **self._as_json())
        listed = found.get("models", []) if isinstance(found, dict) else found
        return tuple(sorted({str(item["name"]) for item in listed if item.get("state") == "READY"}))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wanted(self, name: str, output: str) -> _Model:
        model = self._model(name)
        if output not in model.outputs:
            raise UsageError(
                f"Model {name} gives {', '.join(model.outputs)}, not {output}.",
                hint="Use embed for vectors, classify for labels, or query for what the model gives.",
            )
        return model

    def _model(self, name: str) -> _Model:
        if name not in self._models:
            try:
                found = self._call(self._connection.get_model_config, name, **self._as_json())
            except RequestFailed as error:
                known = self.models()
                if name in known:
                    raise
                raise RequestFailed(
                    f"{self.url} serves no model {name!r}.", hint=f"Ready there: {', '.join(known) or 'none'}."
                ) from error
            config = found.get("config", found)
            outputs = {item["name"]: tuple(int(dim) for dim in item["dims"]) for item in config["output"]}
            self._models[name] = _Model(int(config.get("max_batch_size", 0)), outputs)
        return self._models[name]

    def _answers(
        self, name: str, model: _Model, texts: Sequence[Text], outputs: Sequence[str]
    ) -> Iterator[dict[str, npt.NDArray[Any]]]:
        for chunk in _chunks(texts, max(1, model.max_batch_size)):
            inputs = [self._tensor("TEXT", [text if isinstance(text, str) else text[0] for text in chunk])]
            if not isinstance(chunk[0], str):
                inputs.append(self._tensor("TEXT_PAIR", [text[1] for text in chunk]))
            wanted = [self._library.InferRequestedOutput(output) for output in outputs]
            result = self._call(self._connection.infer, name, inputs, outputs=wanted, **self._timeout())
            yield {output: result.as_numpy(output) for output in outputs}

    def _tensor(self, name: str, texts: Sequence[str]) -> Any:
        try:
            data = np.array([[text.encode("utf-8")] for text in texts], dtype=np.object_)
        except UnicodeEncodeError as error:
            raise UsageError(f"A text cannot be written as UTF-8: {error.reason} at {error.start}.") from error
        tensor = self._library.InferInput(name, data.shape, "BYTES")
        tensor.set_data_from_numpy(data)
        return tensor

    def _as_json(self) -> dict[str, Any]:
        return {"as_json": True, **self._timeout()} if self.protocol == "grpc" else {}

    def _timeout(self) -> dict[str, float]:
        return {"client_timeout": self._timeout_s} if self.protocol == "grpc" else {}

    def _call(self, function: Any, *arguments: Any, **options: Any) -> Any:
        """The one border at which foreign errors become ours."""
        from tritonclient.utils import InferenceServerException

        try:
            return function(*arguments, **options)
        except InferenceServerException as error:
            raise self._translated(str(error.status() or ""), str(error.message())) from error
        except TimeoutError as error:
            raise self._timed_out() from error
        except OSError as error:
            raise self._not_ready(str(error)) from error
        except Exception as error:
            # gevent's HTTP client has errors of its own family, without a common base to import lightly.
            if type(error).__module__.startswith(("gevent", "geventhttpclient")):
                raise self._not_ready(str(error)) from error
            raise

    def _translated(self, status: str, message: str) -> ServerError:
        code = status.removeprefix("StatusCode.")
        if "maximum queue size" in message or "timeout expired" in message.lower():
            return Overloaded(
                f"{self.url} has more requests than it can answer: {message}.",
                hint="Wait and send again, or send fewer at a time.",
            )
        if code in ("DEADLINE_EXCEEDED", "499", "504"):
            return self._timed_out()
        if code in ("UNAVAILABLE", "503"):
            return self._not_ready(message)
        return RequestFailed(f"{self.url} refused the request: {message}.", status=code)

    def _timed_out(self) -> TimedOut:
        return TimedOut(
            f"{self.url} gave no answer within {self._timeout_s:g} s.", hint="Give more time, or send fewer texts."
        )

    def _not_ready(self, reason: str) -> NotReady:
        return NotReady(
            f"No Triton answers {self.protocol} at {self.url}: {reason.rstrip('.')}.",
            hint="`trimaran serve` starts one; check --url and --protocol.",
        )


def _chunks(texts: Sequence[Text], limit: int) -> Iterator[Sequence[Text]]:
    """Runs of at most `limit` texts; a run holds single texts or pairs, never both."""
    begin = 0
    for index in range(1, len(texts) + 1):
        full = index - begin == limit
        if index == len(texts) or full or isinstance(texts[index], str) != isinstance(texts[begin], str):
            yield texts[begin:index]
            begin = index
