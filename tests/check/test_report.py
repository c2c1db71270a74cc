"""A fault that follows from another one is left out, and named with its cause."""

from adapter.commands.check.report import Place, ReportSection, SubjectKind, folded, report_data, report_lines


def section(about: str, text: str, cause: str = "", *symptom_of: str, kind: SubjectKind | None = None) -> ReportSection:
    made = ReportSection(about, kind)
    made.wrong(text, cause=cause, symptom_of=symptom_of)
    return made


def test_a_symptom_is_named_with_its_cause_and_left_out() -> None:
    sections = folded([section("APIService", "it is down", "api"), section("HPA a", "an error", "", "servers", "api")])
    assert list(report_lines(sections)) == [
        "APIService",
        "  wrong  it is down",
        "         this explains faults of HPA a",
        "no policies and no registries: 1 wrong",
    ]
    assert report_data(sections)["sections"][0]["findings"][0]["explains"] == ["HPA a"]


def test_what_a_cause_explains_was_checked_and_counts() -> None:
    symptom = section("HPA a", "an error", "", "api", kind=SubjectKind.HPA)
    sections = folded([section("APIService", "it is down", "api"), symptom])
    assert list(report_lines(sections))[-1] == "1 HPA: 1 wrong"
    assert [one["about"] for one in report_data(sections)["sections"]] == ["APIService"]


def test_without_its_cause_a_symptom_is_a_fault_of_its_own() -> None:
    sections = folded([section("HPA a", "an error", "", "api")])
    assert [one.about for one in sections] == ["HPA a"]


def test_the_first_cause_of_a_chain_explains_all_of_it() -> None:
    sections = folded([
        section("HPA a", "an error", "", "api"),
        section("APIService", "it is down", "api", "servers"),
        section("rights", "none", "rights"),
        section("Deployment", "no pods", "servers", "rights"),
    ])  # fmt: skip
    (root,) = (one for one in sections if one.findings)
    assert root.about == "rights"
    assert set(root.findings[0].explains) == {"HPA a", "APIService", "Deployment"}


def test_causes_in_a_circle_do_not_hide_each_other() -> None:
    sections = folded([section("a", "a", "a", "b"), section("b", "b", "b", "a")])
    assert [one.about for one in sections] == ["a", "b"]


def test_many_explained_things_are_counted() -> None:
    sections = folded([section("a", "down", "a"), *(section(f"HPA {number}", "e", "", "a") for number in range(7))])
    assert list(report_lines(sections))[2].endswith("HPA 0, HPA 1, HPA 2, HPA 3, HPA 4 and 2 more")


def test_what_was_not_checked_is_counted_and_is_no_fault() -> None:
    made = ReportSection("servers")
    made.skipped("whether they are ready")
    assert list(report_lines([made])) == [
        "servers",
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
