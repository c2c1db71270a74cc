"""The HPA model of the closed loops, compared with measurements of the stock controller."""

from adapter.load.spec import Bounds
from tests.simulation.stock_hpa import PERCENT, PODS, RatePolicy, StockHpa, trace

WIDE = Bounds(minimum=1, maximum=1000)


def test_a_percentage_up_waits_for_its_period() -> None:
    hpa = StockHpa(bounds=WIDE, up=(RatePolicy(PERCENT, 50, 90),))
    counts = trace(hpa, 20, [100] * 19)
    assert [counts[0], counts[6], counts[12], counts[18]] == [30, 45, 68, 100]


def test_a_percentage_up_is_rounded_up_in_binary_floats() -> None:
    assert trace(StockHpa(bounds=WIDE, up=(RatePolicy(PERCENT, 10, 60),)), 50, [100]) == [56]
    assert trace(StockHpa(bounds=WIDE, up=(RatePolicy(PERCENT, 10, 60),)), 100, [900]) == [111]


def test_a_percentage_down_is_rounded_down() -> None:
    hpa = StockHpa(bounds=WIDE, down_window=0, down=(RatePolicy(PERCENT, 20, 90),))
    assert trace(hpa, 100, [10] * 61)[::6] == [80, 64, 51, 40, 32, 25, 20, 16, 12, 10, 10]


def test_a_period_that_is_no_multiple_of_the_sync_ends_at_the_next_sync() -> None:
    assert trace(StockHpa(bounds=WIDE, sync=5, up=(RatePolicy(PODS, 1, 6),)), 1, [9] * 4) == [2, 2, 3, 3]
    assert trace(StockHpa(bounds=WIDE, sync=5, up=(RatePolicy(PODS, 1, 5),)), 1, [9] * 4) == [2, 3, 4, 5]


def test_a_lower_value_waits_for_the_window_and_then_removes_one_pod_at_a_time() -> None:
    hpa = StockHpa(bounds=WIDE, sync=10, down_window=60, down=(RatePolicy(PODS, 1, 10),))
    assert trace(hpa, 13, [1] * 10) == [13, 13, 13, 13, 13, 13, 12, 11, 10, 9]


def test_a_higher_value_waits_for_the_scale_up_window() -> None:
    assert trace(StockHpa(bounds=WIDE, up_window=60), 10, [20] * 6) == [10, 10, 10, 10, 20, 20]


def test_a_spike_of_one_sync_expires_with_the_window() -> None:
    assert trace(StockHpa(bounds=WIDE, down_window=300), 10, [10, 20, *[10] * 21])[19:] == [20, 20, 10, 10]
