"""Hook of mkdocs: makes the site of docs/ whole with what lies outside of it.

README and CONTRIBUTING become pages, and so does every other file of the repository that a page links to (a folder
becomes a list); links lead there. The links of a page work in the repository too, and the site needs no other host. An
entry of the navigation that ends with / stands for the pages of that folder.
"""

import functools
import logging
import posixpath
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_LOG = logging.getLogger("mkdocs.hooks.site")
ROOT = Path(__file__).parents[2]
PAGES = {"README.md": "index.md", "README.zh.md": "index.zh.md", "CONTRIBUTING.md": "contributing.md"}
"""Pages outside docs/: the path in the repository, and the path of the page."""
FILES, RAW = "files", "files/raw"
_SHOWN_BYTES = 40_000
"""A larger file is offered as it is, not as a page."""
_LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^)#\s]+)")
_LOADED = re.compile(
    r'<(?:script|img|iframe|source|link rel="(?!canonical|prev|next))[^>]*(?:src|href)="((?:https?:)?//[^"]*)"'
)
_TABLE_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_CODE = re.compile(r"`[^`\n]+`")
_LANGUAGES = {".yaml": "yaml", ".py": "python", ".json": "json"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lists the pages of folders in the navigation."""
    config.nav = list(_unfolded(config.nav or [], Path(config.docs_dir)))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages outside docs/, and what pages link to."""
    for source, page in PAGES.items():
        if (ROOT / source).is_file():
            files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    known: set[str] = set()
    open_pages = list(files.documentation_pages())
    while open_pages:
        file = open_pages.pop()
        linked = {_resolved(file.src_uri, match[2]) for match in _LINK.finditer(file.content_string)}
        for target in sorted(linked - known):
            known.add(target)
            is_file = _page_of(target).startswith(f"{FILES}/") and (ROOT / target).exists()
            for uri, content in _as_pages(target) if is_file else ():
                if files.get_file_from_path(uri) is None:
                    added = File.generated(config, uri, content=content)
                    files.append(added)
                    open_pages += [added] if _is_markdown(uri) else []
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links into the repository into links to the pages of this site."""
    here = page.file.src_uri
    if here.startswith(f"{FILES}/") and not _is_markdown(here):
        return markdown

    def led(match: re.Match[str]) -> str:
        to = _page_of(_resolved(here, match[2]))
        return match[1] + posixpath.relpath(to, posixpath.dirname(here) or ".")

    # Code in a table: GitHub wants its bars escaped, mkdocs shows the escape.
    plain_bars = functools.partial(_CODE.sub, lambda code: code[0].replace("\\|", "|"))
    return _TABLE_ROW.sub(lambda row: plain_bars(row[0]), _LINK.sub(led, markdown))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> None:
    """Warns of what a page would load from elsewhere; with --strict that ends the build."""
    for found in _LOADED.findall(output):
        _LOG.warning("%s loads %s; the site has to work offline", page.file.src_uri, found)


def _unfolded(entries: Iterable[Any], docs: Path) -> Iterator[Any]:
    """The entries of a navigation; one that ends with / is the pages of that folder, its index first."""
    for entry in entries:
        if isinstance(entry, dict):
            for title, inside in entry.items():
                entries_inside = [inside] if isinstance(inside, str) else inside
                is_page = isinstance(inside, str) and not inside.endswith("/")
                yield {title: inside if is_page else list(_unfolded(entries_inside, docs))}
        elif entry.endswith("/"):
            names = sorted(path.name for path in (docs / entry).glob("*.md"))
            yield from (entry + name for name in sorted(names, key=lambda name: name != "index.md"))
        else:
            yield entry


def _resolved(here: str, link: str) -> str:
    """The path in the repository that a link of a page leads to."""
    own = here.removeprefix(f"{FILES}/") if _is_markdown(here) else f"docs/{here}"
    source = next((source for source, page in PAGES.items() if page == here), own)
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def _page_of(target: str) -> str:
    """The path on the site of a file or folder of the repository."""
    if target in PAGES:
        return PAGES[target]
    path = ROOT / target
    if path.suffix == ".md" and not target.startswith("docs/"):
        return f"{FILES}/{target}"
    # Examples are no pages of the site.
    if target.startswith("docs/") and not target.startswith("docs/examples/"):
        return target.removeprefix("docs/")
    shown = path.is_dir() or (path.is_file() and path.stat().st_size <= _SHOWN_BYTES and path.suffix != ".html")
    return f"{FILES}/{target}.md" if shown else f"{RAW}/{target}"


def _is_markdown(uri: str) -> bool:
    """Whether a page is a page of the repository outside docs/, in its own Markdown."""
    return uri.startswith(f"{FILES}/") and uri.endswith(".md") and (ROOT / uri.removeprefix(f"{FILES}/")).is_file()


def _as_pages(target: str) -> Iterator[tuple[str, str | bytes]]:
    """The page of a file or folder, and the files that a folder's page links to."""
    path, uri = ROOT / target, _page_of(target)
    if _is_markdown(uri):
        yield uri, path.read_text(encoding="utf-8")
        return
    head = f"---\nsearch: {{exclude: true}}\n---\n\n# {target}\n\n"
    if path.is_dir():
        names = sorted(one.name for one in path.iterdir() if one.is_file() and not one.name.startswith((".", "__")))
        up = posixpath.relpath(f"{RAW}/{target}", posixpath.dirname(uri))
        yield uri, head + "".join(f"- [{name}]({up}/{name})\n" for name in names)
        for name in names:
            yield f"{RAW}/{target}/{name}", (path / name).read_bytes()
    elif uri.endswith(f"{path.name}.md"):
        text = path.read_text(encoding="utf-8")
        yield uri, f"{head}~~~~ {{.{_LANGUAGES.get(path.suffix, 'text')}}}\n{text}\n~~~~\n"
    else:
        yield uri, path.read_bytes()
