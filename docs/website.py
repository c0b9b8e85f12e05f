"""Builds the site of the documentation: `python docs/website.py` (that is `make site`) writes it to out/site.

The pages are the Markdown files of this repository, which also read well without the site. `sources` makes pages of the site from
them, and Zensical renders these, by docs/mkdocs.yml. Any dead link, missing anchor, page outside the navigation, or address of
another host that a page would load from ends the build with an error.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "docs" / "mkdocs.yml"
STYLE = ROOT / "docs" / "site.css"
OUT = ROOT / "out"
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "examples/monitoring/README.md": "monitoring.md",
    **{f"docs/{path.name}": path.name for path in sorted((ROOT / "docs").glob("*.md"))},
}
"""The pages of the site, by the files of this repository that they are made from."""

FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)\s#:]*)(#[^)\s]*)?(\))")
NAMED = re.compile(r"\[[\w./]+\.md(\]\(([^)\s#:]+\.md))")
"""A link to a page by the name of its file: `[docs/tour.md](docs/tour.md)`."""
LOADED = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>|<\w+ class="?mermaid""")
"""What a page would load from another host. The script that draws Mermaid's graphs is such a thing."""


def place(file: str) -> str:
    """Return where a file of this repository stands in the site: pages and pictures as they are named, other files in `files`."""
    if file in PAGES:
        return PAGES[file]
    return file.removeprefix("docs/") if file.startswith("docs/images/") else f"files/{file}"


def links(text: str) -> Iterator[tuple[str, str]]:
    """Yield the links of a page to files and headings: the file as it is written (empty: this page), and `#heading` or nothing."""
    for found in LINK.finditer(FENCED.sub("", text)):
        if found[2] or found[3]:
            yield found[2], found[3] or ""


def target(page: str, link: str) -> str:
    """Return the file of this repository that a link on a page names. `page`: a file of this repository."""
    return os.path.normpath(PurePosixPath(page).parent / link) if link else page


def title(file: str) -> str:
    """Return the first heading of a page."""
    return next(line[2:] for line in (ROOT / file).read_text(encoding="utf-8").splitlines() if line.startswith("# "))


def converted(page: str, text: str) -> str:
    """Return the Markdown of the site for a page: links lead to the pages of the site and have their titles, a fence has only its
    language, and nested lists are indented by four, as Python-Markdown wants them.
    """

    def prose(text: str) -> str:
        entitled = NAMED.sub(lambda found: f"[{title(target(page, found[2]))}{found[1]}", text)
        return re.sub(r"^ {2,3}(?=- |\d+\. )", "    ", LINK.sub(moved, entitled), flags=re.MULTILINE)

    def moved(found: re.Match[str]) -> str:
        if not found[2]:
            return found[0]
        there = place(target(page, found[2]))
        return f"{found[1]}{os.path.relpath(there, PurePosixPath(place(page)).parent)}{found[3] or ''}{found[4]}"

    parts, at = [], 0
    for fence in FENCED.finditer(text):
        parts += [prose(text[at : fence.start()]), re.sub(r"\A(```\w*).*", r"\1", fence[0])]
        at = fence.end()
    return "".join([*parts, prose(text[at:])])


def navigation(config: str) -> list[str]:
    """Return the pages that the navigation of docs/mkdocs.yml names."""
    return re.findall(r"(\S+\.md)\s*$", config.partition("\nnav:")[2], re.MULTILINE)


def sources(folder: Path) -> None:
    """Write the pages, and the files that they link to, to a new folder. Raises ValueError if the navigation has other pages, or a
    link names a file that does not exist.
    """
    named = navigation(CONFIG.read_text(encoding="utf-8"))
    if odd := sorted(set(named) ^ set(PAGES.values())):
        raise ValueError(f"The navigation of {CONFIG.relative_to(ROOT)} and the pages differ in: {', '.join(odd)}.")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copyfile(STYLE, folder / STYLE.name)
    for page, name in PAGES.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(converted(page, text), encoding="utf-8")
        for link, _ in links(text):
            file = target(page, link)
            if not (ROOT / file).is_file():
                raise ValueError(f"{page} links to {link}, which is no file of this repository.")
            if file not in PAGES:
                (folder / place(file)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / file, folder / place(file))


def build() -> None:
    sources(OUT / "site-source")
    shutil.copyfile(CONFIG, OUT / "mkdocs.yml")
    zensical = Path(sys.executable).with_name("zensical")
    subprocess.run([zensical, "build", "--clean", "--strict", "--config-file", OUT / "mkdocs.yml"], cwd=OUT, check=True)
    pages = sorted((OUT / "site").rglob("*.html"))
    loaded = [f"{page.relative_to(OUT)}: {one[0]}" for page in pages for one in LOADED.finditer(page.read_text(encoding="utf-8"))]
    if loaded or not pages:
        raise ValueError("Pages load from other hosts:\n" + "\n".join(loaded) if loaded else "The site has no pages.")


def main() -> None:
    try:
        build()
    except subprocess.CalledProcessError as error:
        sys.exit(f"The site has errors, which stand above (exit code {error.returncode}).")
    except ValueError as error:
        sys.exit(str(error))
    sys.stdout.write(
        f"The site has {len(PAGES)} pages: {OUT / 'site' / 'index.html'}\n"
        "A browser searches it only from a server: python -m http.server --bind 127.0.0.1 --directory out/site\n"
    )


if __name__ == "__main__":
    main()
