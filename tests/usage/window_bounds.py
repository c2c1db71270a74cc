"""What tests read from a sample of a window: whether it may lack samples, and the most that the load may have been."""

from adapter.load.samples import UNCOUNTED, Point


def is_partial(point: Point) -> bool:
    count, full = point.count, point.full
    return count is not None and (count == UNCOUNTED or full is None or count < full)


def is_hollow(point: Point) -> bool:
    """Whether so few samples are in the window that the value says nothing."""
    return point.count is not None and 0 <= point.count < 2


def bound(point: Point) -> int | None:
    """None where nobody knows it."""
    if not is_partial(point):
        return point.value
    if point.count in {None, UNCOUNTED} or point.full is None or point.count is None:
        return None
    return -(-point.value * point.full // (point.count - 1))
