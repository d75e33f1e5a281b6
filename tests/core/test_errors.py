"""An error's facts are attributes, and survive the way out of a child process."""

from __future__ import annotations

import json
import pickle

import pytest

from trimaran.core import errors
from trimaran.core.errors import (
    ChildError,
    IntegrityError,
    NotReady,
    ParityError,
    RepositoryError,
    TrimaranError,
    UsageError,
    error_from_json,
)

SAMPLES = (
    UsageError("Port 80 is already in use.", hint="Give another.", port=80),
    ParityError("embedding differs.", output="embedding", observed=0.3, limit=1e-4),
    RepositoryError("two problems", problems=("first", "second"), wanted="a", found="b"),
    IntegrityError("another machine", wanted={"gpu": "A10"}, found={"gpu": "L4"}),
    ChildError("It died.", reason="SIGSEGV", log="/tmp/log", command=["run", "me"]),
    NotReady("no answer", model="m", status=503, sent=False),
)


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_comes_back_from_json_as_it_was(error: TrimaranError) -> None:
    returned = error_from_json(json.loads(json.dumps(error.as_json())))
    assert type(returned) is type(error)
    assert returned.as_json() == error.as_json()
    assert str(returned) == str(error)


def test_a_fact_that_was_not_given_is_not_in_the_json() -> None:
    assert UsageError("no").as_json()["facts"] == {}
    assert NotReady("no", sent=False).as_json()["facts"] == {"sent": False}
    assert ChildError("no").as_json()["facts"] == {"reason": ""}
    assert RepositoryError("no").as_json()["facts"] == {"problems": []}


def test_the_keys_of_an_error_in_json_stay() -> None:
    assert UsageError("Taken.", hint="Give another.", port=80).as_json() == {
        "kind": "UsageError",
        "message": "Taken.",
        "hint": "Give another.",
        "facts": {"port": 80},
        "exit_code": 2,
    }


def test_problems_are_kept_as_they_are_and_written_as_text() -> None:
    problem = object()
    error = RepositoryError("bad", problems=(problem,))
    assert error.problems == (problem,)
    assert error.as_json()["facts"] == {"problems": [str(problem)]}


def test_an_unknown_kind_is_a_plain_error_and_an_unknown_fact_is_dropped() -> None:
    returned = error_from_json({"kind": "Unheard", "message": "why", "facts": {"colour": "red"}})
    assert type(returned) is TrimaranError and str(returned) == "why"


def test_an_error_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(SAMPLES[0]))
    assert (str(error), error.port) == (str(SAMPLES[0]), 80)


def test_exit_codes_stay() -> None:
    codes = {
        name: kind.exit_code
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, TrimaranError)
    }
    assert codes == {
        "TrimaranError": 1, "UsageError": 2, "UnavailableError": 3, "ValidationError": 4, "ParityError": 4,
        "SignatureError": 4, "QualityError": 4, "RepositoryError": 4, "IntegrityError": 5, "ToolError": 6,
        "ChildError": 6, "ServerError": 7, "NotReady": 7, "RequestFailed": 7, "TimedOut": 7, "Overloaded": 7,
    }  # fmt: skip
