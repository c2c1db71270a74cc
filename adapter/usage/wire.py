"""What `/api/v1/query` answers, read in slices: the samples of an instant vector, or why there are none."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from adapter.decoding import Decoder
from adapter.kube.slices import Slices
from adapter.usage.errors import QueryRejected, SourceFailing, UsageError, WrongAnswer
from adapter.usage.pieces import cut

_SHOWN = 200
_TROUBLE = {"timeout", "canceled", "internal", "unavailable", "not_found"}
"""Error types that speak of the server, not of the question."""

_REFUSED_ABOVE = 399
_TROUBLE_ABOVE = 499
_TOO_MANY = 429


class Sample(NamedTuple):
    """One series of the answer: its labels, the moment of evaluation (seconds), and the value as text."""

    labels: Mapping[str, str]
    at: float
    value: str


class _Series(msgspec.Struct, frozen=True):
    metric: dict[str, str]
    value: tuple[float, str] | None = None


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    status: str
    data: _Data | None = None
    error_type: str = ""
    error: str = ""
    warnings: list[str] | None = None


_ANSWER = Decoder(_Answer)
_MANY = Decoder(list[_Series])
_SCALAR = Decoder(tuple[float, str])


async def samples(body: bytes, slices: Slices) -> list[Sample]:
    """The samples of a successful answer; a scalar is one sample without labels.

    Raises QueryRejected for an error that the question made, SourceFailing for one of the server's own and for warnings
    (an answer may then lack a part), WrongAnswer for anything else than a vector or scalar.
    """
    try:
        return await _in_pieces(body, slices)
    except msgspec.MsgspecError:
        pass  # an end that was guessed wrongly, or no answer of Prometheus at all
    try:
        return await _whole(body, slices)
    except msgspec.MsgspecError as error:
        raise WrongAnswer(f"the answer is not what Prometheus answers: {error}: {_beginning(body)}") from error


async def _in_pieces(body: bytes, slices: Slices) -> list[Sample]:
    found = cut(body, opening=b'"result":[', first=b'{"metric":')
    if found is None:
        return await _whole(body, slices)
    _checked(_ANSWER.decode(found.envelope))
    read: list[Sample] = []
    for piece in found.pieces:
        read += _samples(_MANY.decode(piece))
        await slices.breathe()
    return read


async def _whole(body: bytes, slices: Slices) -> list[Sample]:
    data = _checked(_ANSWER.decode(body))
    await slices.breathe()
    if data.result_type == "scalar":
        at, value = _SCALAR.decode(data.result)
        return [Sample({}, at, value)]
    return _samples(_MANY.decode(data.result))


def _checked(answer: _Answer) -> _Data:
    if answer.status != "success" or answer.data is None:
        raise _refusal(answer)
    if answer.warnings:
        raise SourceFailing(f"answers with a warning: {answer.warnings[0][:_SHOWN]}")
    if answer.data.result_type not in {"vector", "scalar"}:
        raise QueryRejected(f"the query answers a {answer.data.result_type}; write one that answers an instant vector")
    return answer.data


def _refusal(answer: _Answer) -> UsageError:
    kind = SourceFailing if answer.error_type in _TROUBLE else QueryRejected
    return kind(f"{answer.error_type or 'error'}: {answer.error[:_SHOWN] or 'no word of why'}")


def _samples(rows: list[_Series]) -> list[Sample]:
    return [Sample(row.metric, *_value(row)) for row in rows]


def _value(row: _Series) -> tuple[float, str]:
    if row.value is None:
        raise QueryRejected("the query answers a native histogram; take a number from it, as histogram_quantile does")
    return row.value


def refusal(status: int, body: bytes) -> UsageError:
    """The error that an answer outside 2xx stands for: its own words where it has some."""
    try:
        told: UsageError = _refusal(_ANSWER.decode(body))
    except msgspec.MsgspecError:
        told = QueryRejected(_beginning(body) or "no word of why")
    if status == _TOO_MANY or status > _TROUBLE_ABOVE:
        return SourceFailing(f"HTTP {status}: {told}")
    if status > _REFUSED_ABOVE:
        return QueryRejected(f"HTTP {status}: {told}")
    return QueryRejected(f"HTTP {status}: a redirect or an empty answer; name the address that answers itself")


def _beginning(body: bytes) -> str:
    """The beginning of a body that could not be read, on one line."""
    return " ".join(body[:_SHOWN].decode(errors="replace").split())
