"""What is well has one line; a fault that follows from another one is left out, and named with its cause."""

import pytest

from adapter.commands.check.report import Place, ReportSection, SubjectKind, folded, report_data, report_lines


def section(about: str, text: str, cause: str = "", *symptom_of: str, kind: SubjectKind | None = None) -> ReportSection:
    made = ReportSection(about, kind)
    made.wrong(text, cause=cause, symptom_of=symptom_of)
    return made


def test_what_is_well_has_one_line_and_the_last_one_is_the_summary() -> None:
    well = [ReportSection(f"policy shop/{name}", SubjectKind.POLICY) for name in ("a", "b", "c")]
    for one in well:
        one.ok("fine")
    assert list(report_lines(well)) == ["3 policies: all is well"]
    odd = ReportSection("HPA shop/a of policy a", SubjectKind.HPA)
    odd.note("odd")
    assert list(report_lines([*well, odd]))[-1] == "3 policies, 1 HPA: nothing wrong, 1 note"
    ill = ReportSection("registry main (Consul)", SubjectKind.REGISTRY)
    ill.ok("http://a can be reached")
    ill.wrong("http://b cannot be reached")
    assert list(report_lines([ill, *well, odd])) == [
        "registry main (Consul)",
        "  wrong  http://b cannot be reached",
        "HPA shop/a of policy a",
        "  note   odd",
        "ok     3 policies (--verbose lists the findings)",
        "1 registry, 3 policies, 1 HPA: 1 wrong, 1 note",
    ]
    assert list(report_lines([ill], verbose=True))[1:3] == [
        "  ok     http://a can be reached",
        "  wrong  http://b cannot be reached",
    ]
    assert list(report_lines([])) == ["no policies and no registries: all is well"]


def test_a_symptom_is_named_with_its_cause_and_left_out_and_counts_as_checked() -> None:
    symptom = section("HPA a", "an error", "", "servers", "api", kind=SubjectKind.HPA)
    sections = folded([section("APIService", "it is down", "api"), symptom])
    assert list(report_lines(sections)) == [
        "APIService",
        "  wrong  it is down",
        "         this explains faults of HPA a",
        "1 HPA: 1 wrong",
    ]
    assert report_data(sections) == {
        "ok": False,
        "sections": [
            {
                "about": "APIService",
                "findings": [{"verdict": "wrong", "text": "it is down", "explains": ["HPA a"]}],
            }
        ],
    }


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        pytest.param([section("HPA a", "an error", "", "api")], {"HPA a": ()}, id="a symptom without its cause"),
        pytest.param(
            [
                section("HPA a", "an error", "", "api"),
                section("APIService", "it is down", "api", "servers"),
                section("rights", "none", "rights"),
                section("Deployment", "no pods", "servers", "rights"),
            ],
            {"rights": ("HPA a", "APIService", "Deployment")},
            id="the first cause of a chain explains all of it",
        ),
        pytest.param(
            [section("a", "a", "a", "b"), section("b", "b", "b", "a")],
            {"a": (), "b": ()},
            id="causes in a circle do not hide each other",
        ),
    ],
)
def test_what_no_cause_explains_is_told(sections: list[ReportSection], told: dict[str, tuple[str, ...]]) -> None:
    found = {one.about: one.findings[0].explains for one in folded(sections) if one.findings}
    assert {about: sorted(explained) for about, explained in found.items()} == {
        about: sorted(explained) for about, explained in told.items()
    }


def test_many_explained_things_are_counted() -> None:
    sections = folded([section("a", "down", "a"), *(section(f"HPA {number}", "e", "", "a") for number in range(7))])
    assert list(report_lines(sections))[2].endswith("HPA 0, HPA 1, HPA 2, HPA 3, HPA 4 and 2 more")


def test_what_was_not_checked_is_counted_and_is_no_fault() -> None:
    made = ReportSection("servers")
    made.skipped("whether they are ready")
    assert list(report_lines([made]))[1:] == [
        "  skip   not checked: whether they are ready",
        "no policies and no registries: nothing wrong, 1 not checked",
    ]
    assert report_data([made])["ok"]


def test_a_place_stands_before_the_sentence_and_by_itself_in_json() -> None:
    made = ReportSection("policy a/b")
    made.wrong("is wrong", place=Place(file="a.yaml", line=7, field="spec.hpa"))
    assert list(report_lines([made]))[1] == "  wrong  a.yaml:7: spec.hpa: is wrong"
    (finding,) = report_data([made])["sections"][0]["findings"]
    assert finding == {"verdict": "wrong", "text": "is wrong", "file": "a.yaml", "line": 7, "field": "spec.hpa"}
