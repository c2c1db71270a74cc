"""`check --manifests`: from a folder to the report's sections."""

from collections.abc import Sequence

from adapter.check.manifests.files import Located, read_folder, read_stream
from adapter.check.manifests.links import check_links
from adapter.check.manifests.objects import read_objects
from adapter.check.report import FindingLevel, ReportSection
from adapter.settings import Settings


def check_folder(folder: str, settings: Settings | None) -> list[ReportSection]:
    """Check the files of a folder, or one file; `settings` take the place of those among them.

    Raises ManifestsError for a folder that cannot be read.
    """
    return _checked(*read_folder(folder), f"folder {folder}", settings)


def check_stream(text: str, settings: Settings | None) -> list[ReportSection]:
    """As `check_folder`, of one text from standard input."""
    return _checked(*read_stream(text), "standard input", settings)


def _checked(
    located: Sequence[Located], unreadable: Sequence[ReportSection], about: str, settings: Settings | None
) -> list[ReportSection]:
    sections: dict[str, ReportSection] = {}
    objects = read_objects(located, settings, sections)
    check_links(objects, sections)
    result = [*unreadable, *(section for section in sections.values() if section.findings)]
    if not objects.policies and not objects.faulty:
        empty = ReportSection(about)
        empty.note("there is no WatermarkPolicy among the files")
        result.append(empty)
    return [_without_repeats(section) for section in result]


def _without_repeats(section: ReportSection) -> ReportSection:
    """The section with each finding once, and without those that are ok where others are not."""
    kept = list(dict.fromkeys(section.findings))
    if any(one.verdict is not FindingLevel.OK for one in kept):
        kept = [one for one in kept if one.verdict is not FindingLevel.OK]
    return ReportSection(section.about, section.kind, kept)
