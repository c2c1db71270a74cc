"""Serves the document of a policy's decision: everything that the count which the HPA gets is decided from.

`GET …/namespaces/NAMESPACE/watermarkpolicies.effective-load.io/NAME/decision` of custom.metrics.k8s.io, authorized as
a metric of that policy is. It is written in slices, one at a time for each user, and bounded in size.
"""

from http import HTTPStatus
from typing import Any

import msgspec

from adapter.apiserver import document_writer
from adapter.apiserver.policy_figures import require_assessment
from adapter.apiserver.provider import LiveDecision, MetricsProvider
from adapter.apiserver.request_info import ALL_OBJECTS, RequestInfo, RequestKind
from adapter.apiserver.status import StatusError, bad_request, unavailable
from adapter.load.quantity import milli_text
from adapter.runtime.concurrency import Slices
from adapter.telemetry.metrics import package_version

DECISION = "decision"
"""The pseudo-metric under which decisions are served."""
KIND = "PolicyDecision"
MOST_ITEMS = 5000
"""The pods and instances of a document: as many as `decide` reads within two seconds."""
MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
"""As large as a document that `decide` reads."""


class DecisionDocuments:
    """Writes the documents of decisions."""

    def __init__(self, provider: MetricsProvider) -> None:
        self._provider = provider

    async def answer(self, info: RequestInfo) -> bytearray:
        """The decision at this moment and its document, as JSON.

        Raises StatusError: as a request for `desired_replicas` does, and 413 for a document that would be too large. A
        decision that is an error is no StatusError.
        """
        if info.labels is not None or info.series is not None:
            raise bad_request("a decision has no series to select; leave labelSelector and metricLabelSelector away")
        live = await self._provider.live_decision(info)
        view, inputs = live.view, live.view.inputs
        require_assessment(view)
        if inputs is None or inputs.target is None or not view.spec:
            raise unavailable(f"the inputs of WatermarkPolicy {view.policy.namespace}/{view.policy.name} are not kept")
        policy, counts = view.policy, {"pods": len(inputs.pods)}
        if inputs.roster is not None:
            counts["registered instances"] = len(inputs.roster.instances)
        for what, count in counts.items():
            if count > MOST_ITEMS:
                message = f"has {count} {what}; a document has at most {MOST_ITEMS} of them"
                message = f"WatermarkPolicy {policy.namespace}/{policy.name} {message}"
                raise StatusError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
        body = bytearray(msgspec.json.encode(_envelope(info, live))[:-1] + b',"document":')
        slices = Slices()
        for piece in document_writer.pieces(inputs, view.spec, live.scale, live.now):
            body += piece
            if len(body) > MAX_DOCUMENT_BYTES:
                message = f"the document of the decision is larger than {MAX_DOCUMENT_BYTES >> 20} MiB"
                raise StatusError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
            await slices.breathe()
        body += b"}"
        return body


def is_decision(info: RequestInfo) -> bool:
    """Whether the request is for the document of a policy's decision."""
    return info.kind is RequestKind.POLICY and info.metric == DECISION and info.name != ALL_OBJECTS


def _envelope(info: RequestInfo, live: LiveDecision) -> dict[str, Any]:
    decision, policy = live.decision, live.view.policy
    return {
        "kind": KIND,
        "apiVersion": f"{info.group}/{info.version}",
        "metadata": {"namespace": policy.namespace, "name": policy.name},
        "server": {"version": package_version()},
        "decision": {
            "current": decision.current,
            "desiredReplicas": decision.desired,
            "served": None if decision.served is None else milli_text(decision.served),
            "error": decision.error,
            "verdict": decision.verdict.value,
            "heldBy": decision.held_by.value if decision.held_by else None,
            "lowerBound": decision.lower_bound,
            "upperBound": decision.upper_bound,
        },
    }
