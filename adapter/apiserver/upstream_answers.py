"""Reads the answers of an upstream adapter: lists pass as they are once they are checked, errors are rewritten.

What the HPA would take for zero never passes: an item whose value is absent or null. Neither do items of another
namespace than the requested one. Nothing else of an answer passes: no header, no `retryAfterSeconds`.
"""

from http import HTTPStatus
from typing import Any

import msgspec

from adapter.apiserver.request_info import CUSTOM, RequestInfo
from adapter.apiserver.status import StatusError
from adapter.kube.objects import Status
from adapter.runtime.answer_budget import Body
from adapter.runtime.decoding import Decoder, Uncut, array, pieces
from adapter.runtime.outbound import SegmentedReply
from adapter.runtime.slices import Slices
from adapter.runtime.source_errors import NotAllowed, NotAuthenticated, SourceError, SourceFailing, WrongAnswer

_ALL_NAMESPACES = frozenset({"", "*"})
_LONGEST_MESSAGE = 1024
_SHOWN = 200
_READ = 64 * 1024  # bytes of an error's body that are read
_REASONS = {
    HTTPStatus.BAD_REQUEST: "BadRequest",
    HTTPStatus.NOT_FOUND: "NotFound",
    HTTPStatus.METHOD_NOT_ALLOWED: "MethodNotAllowed",
    HTTPStatus.NOT_ACCEPTABLE: "NotAcceptable",
    HTTPStatus.CONFLICT: "Conflict",
    HTTPStatus.GONE: "Gone",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Invalid",
    HTTPStatus.TOO_MANY_REQUESTS: "TooManyRequests",
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalError",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailable",
    HTTPStatus.GATEWAY_TIMEOUT: "Timeout",
    HTTPStatus.LOOP_DETECTED: "LoopDetected",
}
"""The codes that pass, each with its reason: both are labels of metrics, so the upstream does not choose them."""


class _Described(msgspec.Struct):
    namespace: str | None = None


class _MetricValue(msgspec.Struct, rename="camel"):
    described_object: _Described
    value: str | int | float


class _ExternalMetricValue(msgspec.Struct):
    value: str | int | float


class _List(msgspec.Struct, rename="camel"):
    items: msgspec.Raw = msgspec.Raw(b"null")
    kind: str = ""
    api_version: str = ""


_LIST = Decoder(_List)
_CUSTOM_ITEMS: Decoder[list[_MetricValue] | None] = Decoder(list[_MetricValue] | None)
_EXTERNAL_ITEMS: Decoder[list[_ExternalMetricValue] | None] = Decoder(list[_ExternalMetricValue] | None)
_STATUS = Decoder(Status)
_ITEMS = array("items")


async def metric_list(reply: SegmentedReply, request: RequestInfo) -> bytes:
    """The list that answers the request, byte for byte.

    Raises StatusError for an error that the upstream answers, SourceError for what is no answer to this request.
    """
    refuse_error(reply)
    content = reply.body.whole()
    try:
        await _check(reply.body, request)
    except (msgspec.MsgspecError, Uncut) as error:
        raise WrongAnswer(f"{error}: {_beginning(content)}", public="the answer is no list of metrics") from error
    return content


async def _check(body: Body, request: RequestInfo) -> None:
    """Checks kind, version and items. It consumes the body, in slices."""
    slices = Slices()
    for piece in pieces(body, _ITEMS):
        text: Any = piece.text
        if piece.is_last:
            answer = _LIST.decode(text)
            _check_kind(answer, request)
            text = answer.items
        if request.group == CUSTOM:
            _check_namespaces(_CUSTOM_ITEMS.decode(text) or (), request)
        else:
            _EXTERNAL_ITEMS.decode(text)
        await slices.breathe()


def _check_kind(answer: _List, request: RequestInfo) -> None:
    kind = "MetricValueList" if request.group == CUSTOM else "ExternalMetricValueList"
    version = f"{request.group}/{request.version}"
    if (answer.kind, answer.api_version) != (kind, version):
        received = f"{answer.kind[:_SHOWN]!r} of {answer.api_version[:_SHOWN]!r}"
        raise WrongAnswer(f"{received} came instead of {kind} of {version}", public=f"the answer is no {kind}")


def _check_namespaces(items: "list[_MetricValue] | tuple[()]", request: RequestInfo) -> None:
    if request.namespace in _ALL_NAMESPACES:
        return
    for item in items:
        namespace = item.described_object.namespace
        if namespace and namespace != request.namespace:
            raise WrongAnswer(
                f"an item of namespace {namespace[:_SHOWN]!r} came, {request.namespace!r} was requested",
                public="the answer has items of another namespace",
            )


def refuse_error(reply: SegmentedReply) -> None:
    """Raises the error of any answer but 200: StatusError where the upstream explains itself, SourceError otherwise."""
    code = reply.status
    if code == HTTPStatus.OK:
        return
    text = reply.body.start(_READ)
    if code == HTTPStatus.UNAUTHORIZED:
        raise NotAuthenticated(f"HTTP {code}: {_beginning(text)}")
    if code == HTTPStatus.FORBIDDEN:
        public = "the adapter's account lacks the right to this metric there"
        raise NotAllowed(f"HTTP {code}: {_beginning(text)}", public=public)
    if code < HTTPStatus.BAD_REQUEST:
        is_redirect = code >= HTTPStatus.MULTIPLE_CHOICES
        cause = "redirects are not followed" if is_redirect else "only answers of status 200 are read"
        raise WrongAnswer(f"HTTP {code}: {_beginning(text)}", public=f"HTTP {code}: {cause}")
    try:
        status = _STATUS.decode(text)
    except msgspec.MsgspecError:
        status = Status()
    if status.kind != "Status":
        raise _unexplained(code, text)
    if code not in _REASONS:
        code = HTTPStatus.INTERNAL_SERVER_ERROR if code >= HTTPStatus.INTERNAL_SERVER_ERROR else HTTPStatus.BAD_REQUEST
    message = f"upstream adapter: {status.message[:_LONGEST_MESSAGE] or f'HTTP {reply.status}'}"
    raise StatusError(code, _REASONS[HTTPStatus(code)], message)


def _unexplained(code: int, text: bytes) -> SourceError:
    kind = SourceFailing if code >= HTTPStatus.INTERNAL_SERVER_ERROR else WrongAnswer
    return kind(f"HTTP {code}: {_beginning(text)}", public=f"HTTP {code}, and no Kubernetes Status that explains it")


def _beginning(text: bytes) -> str:
    return text[:_SHOWN].decode(errors="replace")
