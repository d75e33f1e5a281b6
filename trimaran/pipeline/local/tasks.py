"""Models by task. Their results have the shapes of transformers' pipelines and of sentence-transformers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.core.errors import UsageError
from trimaran.core.late_interaction import SIMILARITY, maximum_similarities
from trimaran.pipeline.local.embedding import EmbeddingModel
from trimaran.pipeline.local.model import LocalModel
from trimaran.runtime.sides import DOCUMENT, QUERY
from trimaran.runtime.tasks.hybrid_embedding import COLBERT, DENSE, KINDS
from trimaran.runtime.text import Text
from trimaran.serving.client import given
from trimaran.serving.client.columns import given_options
from trimaran.serving.client.given import TextOrTexts

Scored = dict[str, Any]


class ClassificationModel(LocalModel):
    def classify(self, texts: TextOrTexts | Mapping[str, str], *, top_k: int | None = 1) -> Any:
        """Labels with their scores, best first, as transformers' text-classification pipeline gives them.

        A list gets one `{"label", "score"}` a text. Where `top_k` is not 1, it gets a list of them a text, all labels
        for None. One text gets a list of labels in either case.

        Examples:
            >>> model.classify(["A fine day.", "What a mess."])
            [{'label': 'positive', 'score': 0.98}, {'label': 'negative', 'score': 0.95}]
        """
        if isinstance(texts, Mapping):
            texts = [(texts["text"], texts.get("text_pair", ""))]
            return self.classify(texts, top_k=top_k)[0]
        rows, alone = given.texts_or_pairs(texts)
        answers = self._answers(rows, top_k=top_k)
        if alone:
            return answers[0]
        return [answer[0] for answer in answers] if top_k == 1 else answers


class ZeroShotModel(LocalModel):
    def classify(
        self,
        texts: TextOrTexts,
        candidate_labels: str | Iterable[str],
        *,
        hypothesis_template: str = "This example is {}.",
        multi_label: bool = False,
    ) -> Any:
        """`{"sequence", "labels", "scores"}` a text, best label first, as the zero-shot pipeline of transformers.

        Examples:
            >>> model.classify("A fine day at sea.", ["weather", "money"])["labels"]
            ['weather', 'money']
        """
        rows, alone = given.single_texts(texts)
        if isinstance(candidate_labels, str):
            candidate_labels = [label.strip() for label in candidate_labels.split(",") if label.strip()]
        labels = given.strings("candidate_labels", candidate_labels)
        answers = self._answers(rows, labels=labels, template=hypothesis_template, multi_label=multi_label)
        answers = [{"sequence": text, **answer} for text, answer in zip(rows, answers, strict=True)]
        return answers[0] if alone else answers


class EntityModel(LocalModel):
    def entities(
        self,
        texts: TextOrTexts,
        *,
        aggregation_strategy: str = "simple",
        ignore_labels: Sequence[str] = ("O",),
        stride: int | None = None,
    ) -> Any:
        """Entities with character offsets, as transformers' token-classification pipeline gives them.

        With `stride`, a text longer than the model reads is read whole, in pieces that overlap by so many tokens.

        Examples:
            >>> model.entities("Ada lived in London.")
            [{'entity_group': 'PER', 'score': 0.99, 'word': 'Ada', 'start': 0, 'end': 3}, ...]
        """
        rows, alone = given.single_texts(texts)
        answers = self._answers(rows, aggregation=aggregation_strategy, ignore=list(ignore_labels), stride=stride)
        return answers[0] if alone else answers


class AnswerModel(LocalModel):
    def answer(
        self,
        question: str | Sequence[str],
        context: str | Sequence[str],
        *,
        top_k: int = 1,
        max_answer_len: int = 15,
        doc_stride: int = 128,
        handle_impossible_answer: bool = False,
    ) -> Any:
        """The best span of the context, as transformers' question-answering pipeline gives it.

        One question gets one `{"score", "start", "end", "answer"}`, or a list of them where `top_k` is above 1. Lists
        of questions and contexts get a list. One context may serve all questions.

        Examples:
            >>> model.answer("Where did Ada live?", "Ada lived in London.")["answer"]
            'London'
        """
        questions, alone = given.single_texts(question)
        contexts = [context] * len(questions) if isinstance(context, str) else given.single_texts(context).rows
        if len(questions) != len(contexts):
            raise UsageError(
                f"Wanted one context a question, found {len(questions)} questions and {len(contexts)} contexts."
            )
        answers = self._answers(
            list(zip(questions, contexts, strict=True)),
            top_k=given.count("top_k", top_k),
            longest=given.count("max_answer_len", max_answer_len),
            stride=given.count("doc_stride", doc_stride),
            no_answer=handle_impossible_answer,
        )
        if top_k == 1:
            answers = [spans[0] for spans in answers]
        return answers[0] if alone else answers


class MaskModel(LocalModel):
    def fill(
        self,
        texts: TextOrTexts,
        *,
        top_k: int = 5,
        targets: str | Iterable[str] | None = None,
        template: str | None = None,
    ) -> Any:
        """The most probable tokens for the mask, as transformers' fill-mask pipeline gives them.

        A text with one mask gets a list of `{"score", "token", "token_str", "sequence"}`, one with several masks a list
        of such lists. With `targets`, they are the most probable of these words. A `template` with `{}` and `{mask}`
        puts the mask beside each text.

        Examples:
            >>> model.fill("The boat has three [MASK].")[0]["token_str"]
            'hulls'
        """
        rows, alone = given.single_texts(texts)
        words = [targets] if isinstance(targets, str) else targets
        options = given_options(top_k=top_k, targets=words, template=template)
        answers = [masks[0] if len(masks) == 1 else masks for masks in self._answers(rows, **options)]
        return answers[0] if alone else answers

    def classify(
        self,
        texts: TextOrTexts,
        label_words: Mapping[str, str | Sequence[str]],
        *,
        template: str | None = None,
        top_k: int | None = None,
    ) -> Any:
        """Labels with their scores, best first, by words that stand for each label: no head and no training.

        A label's score is the mean probability of its words at the mask, as a share of all labels' means. Each text
        gets a list of `{"label", "score"}`. Without a `template`, each text has the mask in itself.

        Examples:
            >>> words = {"sport": ["football", "tennis"], "money": ["banks"]}
            >>> model.classify("The striker scored twice.", words, template="{} It is about {mask}.")[0]["label"]
            'sport'
        """
        rows, alone = given.single_texts(texts)
        answers = self._answers(rows, **given_options(label_words=label_words, template=template, top_k=top_k))
        return answers[0] if alone else answers


class RerankModel(LocalModel):
    """A drop-in for sentence-transformers' `CrossEncoder` wherever pairs are scored."""

    # What its evaluators ask for.
    num_labels = 1

    def rerank(
        self,
        query: str,
        documents: Iterable[str],
        top_k: int | None = None,
        return_documents: bool = False,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        activation_fn: None = None,
        device: Any = None,
        pool: None = None,
        chunk_size: int | None = None,
    ) -> list[Scored]:
        """Documents by how well each fits the query, as `CrossEncoder.rank` of sentence-transformers gives them.

        `prompt_name` names one of the model's prompts. `prompt` is an instruction of your own in their place.
        `batch_size`, `chunk_size` and `show_progress_bar` change nothing; the activation is the proven one.

        Examples:
            >>> model.rerank("What floats?", ["A stone sinks.", "A boat floats."], top_k=1)
            [{'corpus_id': 1, 'score': 0.97}]
        """
        self._require_scoring(device, batch_size, pool, activation_fn)
        texts = given.strings("documents", documents)
        if not texts:
            return []
        options = {"prompt": prompt_name, "instruction": prompt}
        (ranked,) = self._answers([(given.string("query", query), texts)], top_k=top_k, **options)
        results = [{"corpus_id": row["index"], "score": row["score"]} for row in ranked]
        return [{**row, "text": texts[row["corpus_id"]]} for row in results] if return_documents else results

    rank = rerank

    def predict(
        self,
        inputs: Sequence[Any] | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        activation_fn: None = None,
        apply_softmax: bool | None = False,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: Any = None,
        pool: None = None,
        chunk_size: int | None = None,
        *,
        sentences: Sequence[Any] | None = None,
    ) -> Any:
        """The score of each (query, document) pair, and one number for a single pair, as `CrossEncoder.predict`.

        `sentences` is the older name of `inputs`, as in sentence-transformers.

        Examples:
            >>> model.predict([("What floats?", "A boat floats.")])
            array([0.97], dtype=float32)
        """
        self._require_scoring(device, batch_size, pool, activation_fn)
        pairs = inputs if sentences is None else sentences
        # One pair may be a list of two strings, too.
        alone = isinstance(pairs, Sequence) and len(pairs) > 0 and isinstance(pairs[0], str)
        rows = given.questions(tuple(pairs) if alone else pairs).rows  # type: ignore[arg-type]
        items = [(query, [document]) for query, document in rows]
        answers = self._answers(items, prompt=prompt_name, instruction=prompt)
        scores: Any = np.asarray([ranked[0]["score"] for ranked in answers], np.float32)
        if convert_to_tensor or not convert_to_numpy:
            import torch

            scores = torch.from_numpy(scores)
            scores = scores if convert_to_tensor else list(scores)
        return scores[0] if alone else scores

    def _require_scoring(self, device: Any, batch_size: int, pool: Any, activation_fn: Any) -> None:
        self._require_settings(device, batch_size, pool)
        if activation_fn is not None:
            raise UsageError("The activation is in the model, as it was proven.", hint="Leave out activation_fn.")


class SparseModel(LocalModel):
    def sparse(self, texts: TextOrTexts, *, prompt_name: str | None = None, top_k: int | None = None) -> Any:
        """The tokens that a text weighs, heaviest first, as `SparseEncoder.decode` of sentence-transformers gives them.

        Examples:
            >>> model.sparse("A boat floats.", top_k=2)
            [('boat', 2.1), ('float', 1.7)]
        """
        rows, alone = given.single_texts(texts)
        answers = self._answers(rows, prompt=prompt_name, top_k=top_k)
        pairs = [[(entry["token_str"], entry["weight"]) for entry in answer] for answer in answers]
        return pairs[0] if alone else pairs


class FeatureModel(LocalModel):
    def features(self, texts: TextOrTexts, *, prompt_name: str | None = None) -> Any:
        """One vector a token, `[tokens, width]` a text, as transformers' feature-extraction pipeline computes them.

        A late-interaction model gives those of `MultiVectorEncoder.encode_document` in sentence-transformers, and with
        `prompt_name="query"` those of `encode_query`.

        Examples:
            >>> model.features("A boat floats.").shape
            (6, 384)
        """
        rows, alone = given.texts_or_pairs(texts)
        vectors = [answer["token_embeddings"] for answer in self._answers(rows, prompt=prompt_name)]
        return vectors[0] if alone else vectors

    def score(self, query: str, documents: Iterable[str]) -> npt.NDArray[np.float32]:
        """The score of each document by late interaction: the best cosine of each token of the query, added up.

        It is `maxsim` of sentence-transformers over token vectors of unit length. A late-interaction model scores as
        `MultiVectorEncoder.similarity` does.

        Examples:
            >>> model.score("What floats?", ["A stone sinks.", "A boat floats."])
            array([3.1, 4.2], dtype=float32)
        """
        similarity = str(self.manifest.details.get("answers", {}).get(SIMILARITY, ""))
        sides = (QUERY, DOCUMENT) if similarity else (None, None)
        query_tokens = self.features(given.string("query", query), prompt_name=sides[0])
        others = self.features(given.strings("documents", documents), prompt_name=sides[1])
        return maximum_similarities(query_tokens, others, similarity=similarity)


class HybridModel(EmbeddingModel):
    """A model with three outputs, such as bge-m3. `encode` gives its vectors, as `SentenceTransformer` does."""

    def hybrid(
        self,
        texts: TextOrTexts,
        *,
        outputs: Sequence[str] = KINDS,
        top_k: int | None = None,
        prompt_name: str | None = None,
    ) -> Any:
        """Of one pass over each text a dictionary with `dense`, `sparse` and `colbert`, or those that are asked for.

        `sparse` has the text's own tokens with their weights, heaviest first. `colbert` has a vector for each token but
        the first. The numbers are those of FlagEmbedding's `encode`.

        Examples:
            >>> answer = model.hybrid("A boat floats.", outputs=["dense", "sparse"])
            >>> answer["sparse"][0]
            {'token': 38, 'token_str': '▁boat', 'weight': 0.24}
        """
        rows, alone = given.single_texts(texts)
        answers = self._answers(rows, outputs=list(outputs), top_k=top_k, prompt=prompt_name)
        return answers[0] if alone else answers

    def score(self, query: str, documents: Iterable[str]) -> npt.NDArray[np.float32]:
        """The score of each document by token vectors: the mean over the query's tokens of their best products.

        Examples:
            >>> model.score("What floats?", ["A stone sinks.", "A boat floats."])
            array([0.61, 0.84], dtype=float32)
        """
        texts = [given.string("query", query), *given.strings("documents", documents)]
        first, *others = (answer[COLBERT]["token_embeddings"] for answer in self.hybrid(texts, outputs=[COLBERT]))
        return maximum_similarities(first, others, similarity="meanmaxsim")

    def _dense(self, texts: list[Text], prompt: str | None) -> list[Any]:
        answers = self._answers(given.require_single(texts), outputs=[DENSE], prompt=prompt)
        return [answer[DENSE] for answer in answers]


class ChoiceModel(LocalModel):
    def choose(self, text: str, choices: Iterable[str]) -> list[Scored]:
        """The choices by probability, best first: `{"index", "score"}` each.

        Examples:
            >>> model.choose("It began to rain, so", ["she opened her umbrella.", "the stone sang."])[0]["index"]
            0
        """
        (ranked,) = self._answers([(given.string("text", text), given.strings("choices", choices))])
        return list(ranked)


class NextSentenceModel(LocalModel):
    def follows(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """The probability of each pair that its second text follows the first.

        Examples:
            >>> model.follows([("It began to rain.", "She opened her umbrella.")])
            [0.99]
        """
        return self._answers(given.questions(list(pairs)).rows)


MODELS: dict[str, type[LocalModel]] = {
    "embedding": EmbeddingModel,
    "text-classification": ClassificationModel,
    "zero-shot-classification": ZeroShotModel,
    "token-classification": EntityModel,
    "question-answering": AnswerModel,
    "fill-mask": MaskModel,
    "rerank": RerankModel,
    "sparse-embedding": SparseModel,
    "feature-extraction": FeatureModel,
    "hybrid-embedding": HybridModel,
    "multiple-choice": ChoiceModel,
    "next-sentence": NextSentenceModel,
}
