"""Trains a classifier on vectors with scikit-learn: `python examples/train_a_classifier.py minilm labelled.tsv`.

The pipeline can be pickled: the model in it opens its files again where it is loaded.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import trimaran


def classifier_on(model: trimaran.EmbeddingModel) -> Any:
    """Texts in, labels out: `fit`, `predict` and `score` as any scikit-learn estimator."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    return make_pipeline(FunctionTransformer(model.encode), LogisticRegression(max_iter=1000))


def main() -> None:
    from sklearn.model_selection import cross_val_score

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="the name of a deployed model, or a folder")
    parser.add_argument("file", type=Path, help="a text and its label a line, with a tab between")
    arguments = parser.parse_args()
    with arguments.file.open(encoding="utf-8", newline="") as stream:
        texts, labels = zip(*csv.reader(stream, delimiter="\t"), strict=True)
    scores = cross_val_score(classifier_on(trimaran.load(arguments.model)), list(texts), list(labels))
    print(f"accuracy {scores.mean():.3f} over {len(scores)} folds")


if __name__ == "__main__":
    main()
