"""The decision on a document, by the server's pipeline: `assess`, then `decide`."""

from typing import Any

from adapter.apiserver import decision_document as written
from adapter.commands.decide.reader import DecisionCase
from adapter.load.assess import assess
from adapter.load.assessment import Assessment, Decision
from adapter.load.decide import decide


def decided(case: DecisionCase) -> tuple[Assessment, Decision]:
    """The assessment and the decision, as the server makes them."""
    assessment = assess(case.inputs)
    return assessment, decide(assessment, case.scale, case.inputs.bounds, case.now)


def decision_json(case: DecisionCase) -> dict[str, Any]:
    """The decision with its reasons as JSON data."""
    return written.decision_json(*decided(case), case.inputs.bounds, case.now)
