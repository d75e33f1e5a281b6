from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.benchmarks.scenarios.suite import load_suite
from trimaran.core.config import deploy_config
from trimaran.core.errors import UsageError
from trimaran.core.progress import SilentProgress
from trimaran.core.store import Store
from trimaran.pipeline.suite.run import SuiteOptions, bench_suite


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("candidates = ['openvino-fp23']\n[[scenarios]]\nscenario = 'size'", "Did you mean openvino-fp32"),
        ("[[scenarios]]\nscenario = 'size'\ncandidates = ['chosem']", "Did you mean 'chosen'"),
    ],
)
def test_a_suite_with_an_unknown_candidate_is_refused_before_any_work(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    config = deploy_config({"model": "no such model"})
    with pytest.raises(UsageError) as refused:
        bench_suite(
            config, load_suite(str(path)), SuiteOptions(), store=Store(tmp_path), progress=SilentProgress(), command=()
        )
    assert words in str(refused.value)
