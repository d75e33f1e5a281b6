from __future__ import annotations

import io

import pytest

from trimaran.bulk.meter import Meter, duration
from trimaran.core.progress import LineProgress


def test_a_meter_tells_rows_rates_and_the_time_left() -> None:
    stream = io.StringIO()
    with LineProgress(stream).stage("encode") as step:
        meter = Meter(step, total_bytes=1000)
        assert meter.left_s() is None
        meter.reused(50, 500)
        meter.running(1, 5, 50)
        meter.done(1, 10, 100, 100)
        assert meter.total_rows() == 100
        left_s = meter.left_s()
        assert left_s is not None
        assert left_s == pytest.approx(4 * meter.elapsed_s, rel=0.5)
        assert meter.summary().endswith(f"{duration(left_s)} left")
        assert "rows/s" in meter.summary()
        assert "tokens/s" in meter.summary()
    assert Meter(step, total_bytes=0).left_s() is None
    assert (duration(5), duration(125), duration(7300)) == ("5 s", "2 min 5 s", "2 h 1 min")
