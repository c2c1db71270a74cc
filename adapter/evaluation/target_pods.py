"""The pods of a policy's target, selected anew only where pods, selector or target changed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import is_

from adapter.kube.selectors import LabelSelector
from adapter.load.pods import Pod
from adapter.load.spec import Target
from adapter.load.steps import Steps, collected, mapped
from adapter.policy.linking import target_pods


class TargetPods:
    """The pods of one target. A pod stays the same object as long as neither it nor its endpoints change.

    `endpoint_serving` tells whether EndpointSlices list a pod (namespace, name, uid) as serving; None if none does.
    """

    def __init__(self, endpoint_serving: Callable[[str, str, str], bool | None]) -> None:
        self._endpoint_serving = endpoint_serving
        self._selected_by: tuple[str, ...] = ()
        self._candidates: Sequence[Pod] = ()
        self._selected: Sequence[Pod] = ()
        self._marked: dict[str, tuple[Pod, Pod]] = {}
        """Pods whose endpoints do not serve, by UID: as watched, and as marked."""

    def select(
        self, candidates: Sequence[Pod], selector: LabelSelector, selector_text: str, target: Target
    ) -> Steps[Sequence[Pod]]:
        """Those of the candidates that the selector matches and the target owns, in short steps."""
        selected_by = (selector_text, target.kind, target.name, target.uid)
        is_same = len(candidates) == len(self._candidates) and all(map(is_, candidates, self._candidates))
        if not is_same or selected_by != self._selected_by:
            self._selected = yield from collected(target_pods(candidates, selector, target))
            self._candidates, self._selected_by = candidates, selected_by
        marked = self._marked
        self._marked = {}
        return (yield from mapped(lambda pod: self._with_endpoint(pod, marked), self._selected))

    def _with_endpoint(self, pod: Pod, known: dict[str, tuple[Pod, Pod]]) -> Pod:
        """The pod, marked if its endpoints are not serving; endpoints that are serving decide nothing."""
        if self._endpoint_serving(pod.namespace, pod.name, pod.uid) is not False:
            return pod
        watched, marked = known.get(pod.uid, (None, pod))
        if watched is not pod:
            marked = replace(pod, endpoint_serving=False)
        self._marked[pod.uid] = pod, marked
        return marked
