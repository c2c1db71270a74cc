"""What `/api/v1/query` answers, read in slices: the samples of an instant vector, or why there are none."""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from adapter.runtime.answer_budget import Body
from adapter.runtime.decoding import Decoder
from adapter.runtime.json_pieces import Uncut, array, pieces
from adapter.runtime.slices import Slices
from adapter.runtime.source_errors import QueryRejected, SourceError, SourceFailing, WrongAnswer

_SHOWN = 200
_MOST_SHARED = 1024
"""Values of a label that are kept once; where there are more, as of `pod`, most come but once."""
_TROUBLE = {"timeout", "canceled", "internal", "unavailable", "not_found"}
"""Error types that speak of the server, not of the question."""

_ERROR_TYPES = _TROUBLE | {"bad_data", "execution", "not_acceptable"}
"""The words that Prometheus has for them, which tell nothing of the server."""

_REFUSED_ABOVE = 399
_TROUBLE_ABOVE = 499
_TOO_MANY = 429


class Sample(msgspec.Struct, frozen=True, gc=False):
    """One series of the answer: its labels, the moment of evaluation (seconds), and the value as text."""

    labels: Mapping[str, str]
    at: float
    value: str


class _Series(msgspec.Struct, frozen=True, gc=False):
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
_RESULT = array("result")


async def read_samples(body: Body, take: Callable[[Sample], None], slices: Slices) -> None:
    """Hand over the samples of a successful answer one by one; a scalar is one sample without labels.

    The body is used up on the way. Raises QueryRejected for an error that the question made, SourceFailing for one of
    the server's own and for warnings (an answer may then lack a part), WrongAnswer for anything else than a vector or
    scalar; samples that were handed over before are to be dropped then.
    """
    beginning = _beginning(body.start(_SHOWN))
    shared = _Shared()
    try:
        for piece in pieces(body, _RESULT):
            found = _last(piece.text, shared) if piece.is_last else _samples(_MANY.decode(piece.text), shared)
            for sample in found:
                take(sample)
            await slices.breathe()
    except (msgspec.MsgspecError, UnicodeDecodeError, Uncut) as error:
        raise WrongAnswer(f"the answer is not what Prometheus answers: {error}: {beginning}") from error


class _Shared:
    """Label values and times that repeat in an answer, each kept once: most of its text is a few names."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, str]] = {}
        self._at = 0.0

    def labels(self, labels: dict[str, str]) -> dict[str, str]:
        for name, value in labels.items():
            known = self._values.get(name)
            if known is None:
                known = self._values[name] = {}
            if len(known) < _MOST_SHARED:
                labels[name] = known.setdefault(value, value)
            else:
                labels[name] = known.get(value, value)
        return labels

    def at(self, at: float) -> float:
        if at != self._at:
            self._at = at
        return self._at


def _last(text: bytes | bytearray, shared: _Shared) -> Iterator[Sample]:
    """The end of an answer with its envelope, or a whole one."""
    data = _checked(_ANSWER.decode(text))
    if data.result_type == "scalar":
        at, value = _SCALAR.decode(data.result)
        return iter([Sample({}, at, value)])
    return _samples(_MANY.decode(data.result), shared)


def _checked(answer: _Answer) -> _Data:
    if answer.status != "success" or answer.data is None:
        raise _refusal(answer)
    if answer.warnings:
        raise SourceFailing(
            f"answers with a warning: {answer.warnings[0][:_SHOWN]}",
            public="answers with a warning, so a part of the answer may be missing",
        )
    if answer.data.result_type not in {"vector", "scalar"}:
        kind = answer.data.result_type[:_SHOWN]
        raise QueryRejected(
            f"the query answers a {kind}; write one that answers an instant vector",
            public="the query does not answer an instant vector; write one that does",
        )
    return answer.data


def _refusal(answer: _Answer) -> SourceError:
    kind = SourceFailing if answer.error_type in _TROUBLE else QueryRejected
    named = answer.error_type if answer.error_type in _ERROR_TYPES else ""
    return kind(
        f"{answer.error_type[:_SHOWN] or 'error'}: {answer.error[:_SHOWN] or 'no word of why'}",
        public=f"{kind.summary} ({named})" if named else "",
    )


def _samples(rows: list[_Series], shared: _Shared) -> Iterator[Sample]:
    for row in rows:
        at, value = _value(row)
        yield Sample(shared.labels(row.metric), shared.at(at), value)


def _value(row: _Series) -> tuple[float, str]:
    if row.value is None:
        histogram = "the query answers a native histogram; take a number from it, as histogram_quantile does"
        raise QueryRejected(histogram, public=histogram)
    return row.value


def refusal(status: int, body: bytes) -> SourceError:
    """The error that an answer outside 2xx stands for: its own words where it has some."""
    try:
        told: SourceError = _refusal(_ANSWER.decode(body))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        told = QueryRejected(_beginning(body) or "no word of why")
    if status == _TOO_MANY or status > _TROUBLE_ABOVE:
        return SourceFailing(f"HTTP {status}: {told}", public=f"HTTP {status}")
    if status > _REFUSED_ABOVE:
        return QueryRejected(f"HTTP {status}: {told}", public=f"HTTP {status}: {told.public}")
    return QueryRejected(
        f"HTTP {status}: a redirect or an empty answer; name the address that answers itself",
        public=f"HTTP {status}: a redirect or an empty answer",
    )


def _beginning(body: bytes) -> str:
    """The beginning of a body that could not be read, on one line."""
    return " ".join(body[:_SHOWN].decode(errors="replace").split())
