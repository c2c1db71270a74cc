"""What is kept of a target's pods changes no selection."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from adapter.evaluation.evaluator import TargetPods
from adapter.kube.selectors import parse_selector
from adapter.load.pods import Pod
from adapter.load.spec import Target
from tests.evaluation.kit import web_pods
from tests.load.kit import pod

TARGETS = [Target(api_version="apps/v1", kind="Deployment", name=name) for name in ("web", "api")]


def select(known: TargetPods, pods: list[Pod], text: str, target: Target) -> list[Pod]:
    return list(known.select(tuple(pods), parse_selector(text), text, target))


@given(st.data())
def test_the_pods_of_a_target_are_those_selected_anew(data: st.DataObject) -> None:
    pods = [*web_pods(3), *web_pods(2, "api"), pod("alone", labels={"app": "web"})]
    serving: dict[str, bool] = {}
    silent: set[str] = set()
    known = TargetPods(lambda _namespace, name, _uid: serving.get(name), silent.__contains__)
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(pods) - 1))
        what = data.draw(st.sampled_from(["nothing", "labels", "endpoint", "order", "silence"]))
        if what == "labels":
            pods[place] = replace(pods[place], labels={"app": data.draw(st.sampled_from(["web", "api"]))})
        elif what == "endpoint":
            serving[pods[place].name] = data.draw(st.booleans())
        elif what == "order":
            pods.append(pods.pop(place))
        elif what == "silence":
            silent ^= {"shop"}
        text, target = data.draw(st.sampled_from(["app=web", "app=api"])), data.draw(st.sampled_from(TARGETS))
        anew = TargetPods(lambda _namespace, name, _uid: serving.get(name), silent.__contains__)
        assert select(known, pods, text, target) == select(anew, pods, text, target)
