"""Hook of mkdocs: README and CONTRIBUTING become pages of the site, and links work there as in the repository.

A link to a file outside docs/ becomes the path of that file. An entry of the navigation that ends with / stands for the
pages of that folder.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "README.zh.md": "index.zh.md", "CONTRIBUTING.md": "contributing.md"}
"""Pages outside docs/: the path in the repository, and the path of the page."""
_LINK = re.compile(r"(\[[^\]]*\])\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
_TABLE_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_CODE = re.compile(r"`[^`\n]+`")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lists the pages of folders in the navigation."""
    for section in config.nav or []:
        for title, entries in section.items():
            section[title] = [_unfolded(entry, Path(config.docs_dir)) for entry in entries]
    return config


def _unfolded(entry: str | dict[str, str], docs: Path) -> str | dict[str, str | list[str]]:
    if isinstance(entry, str):
        return entry
    return {
        title: [f"{inside}{path.name}" for path in sorted((docs / inside).glob("*.md"))]
        if isinstance(inside, str) and inside.endswith("/")
        else inside
        for title, inside in entry.items()
    }


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages outside docs/."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs'
    """Turns links to pages into links of the site, and other links into the repository into paths."""
    here = page.file.src_uri
    source = next((source for source, made in PAGES.items() if made == here), f"docs/{here}")

    def led(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[2]))
        to = PAGES.get(target, target.removeprefix("docs/"))
        if to == target or target.startswith("docs/examples/"):
            return f"{match[1][1:-1]} (`{target}`)"
        return f"{match[1]}({posixpath.relpath(to, posixpath.dirname(here) or '.')}{match[3] or ''})"

    # Code in a table: GitHub wants its bars escaped, mkdocs shows the escape.
    def plain(row: re.Match[str]) -> str:
        return _CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0])

    return _TABLE_ROW.sub(plain, _LINK.sub(led, markdown))
