"""What is well has one line; other findings have one each."""

from adapter.commands.check.report import Place, ReportSection, SubjectKind, report_data, report_lines


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
