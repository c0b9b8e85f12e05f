"""The site of the documentation, which `make site` builds: all pages are in its navigation, and its links lead somewhere. These
tests read the sources only.
"""

from __future__ import annotations

import re
import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
website = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "website.py")))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a folder with the sources of the site."""
    website.sources(tmp_path / "site")
    return tmp_path / "site"


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page. A heading that comes again gets a number."""
    text = website.FENCED.sub("", page.read_text(encoding="utf-8"))
    slugs = [re.sub(r"[^\w\- ]", "", one.lower()).strip().replace(" ", "-") for one in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    return {f"{slug}_{n}" if n else slug for slug, count in Counter(slugs).items() for n in range(count)}


def dead(folder: Path) -> Iterator[str]:
    """Yield the links on the pages of a folder that lead to no file, or to no heading."""
    for page in sorted(folder.glob("*.md")):
        for link, heading in website.links(page.read_text(encoding="utf-8")):
            to = page.parent / link if link else page
            if not to.is_file():
                yield f"{page.name}: {link}"
            elif heading and heading[1:] not in anchors(to):
                yield f"{page.name}: {link}{heading}"


def test_links_and_anchors_of_the_site_lead_somewhere(site: Path) -> None:
    links = [link for page in site.glob("*.md") for link in website.links(page.read_text(encoding="utf-8"))]
    assert len(links) > 120
    assert list(dead(site)) == []


def test_a_dead_link_and_a_missing_anchor_are_found(site: Path) -> None:
    """The check above can fail."""
    (site / "limits.md").write_text("# Limits\n\n[a](nowhere.md) [b](tour.md#nowhere) [c](#nowhere) [d](tour.md#scan)\n")
    assert set(dead(site)) >= {"limits.md: nowhere.md", "limits.md: tour.md#nowhere", "limits.md: #nowhere"}
    assert "limits.md: tour.md#scan" not in set(dead(site))


def test_every_page_is_in_the_navigation_once(site: Path) -> None:
    named = website.navigation((ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(named) == sorted(path.name for path in site.glob("*.md"))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= set(named)


def test_a_page_outside_the_navigation_is_an_error(tmp_path: Path) -> None:
    other = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "website.py")))
    other.PAGES["docs/forgotten.md"] = "forgotten.md"
    with pytest.raises(ValueError, match=r"differ in: forgotten\.md"):
        other.sources(tmp_path / "site")


def test_links_lead_to_the_pages_of_the_site() -> None:
    """The README is the first page, other pages of the repository are pages of the site, and all other files are copied."""
    assert website.converted("README.md", "[docs/tour.md](docs/tour.md#scan)") == "[Tour](tour.md#scan)"
    text = "[a](docs/tour.md#scan) [b](CONTRIBUTING.md) [c](examples/etl.py) [d](#quick-start) [e](https://spark.apache.org/docs)"
    moved = "[a](tour.md#scan) [b](contributing.md) [c](files/examples/etl.py) [d](#quick-start) [e](https://spark.apache.org/docs)"
    assert website.converted("README.md", text) == moved
    assert (
        website.converted("docs/ui.md", "![a](images/ui-topic.png) [b](../README.md)") == "![a](images/ui-topic.png) [b](index.md)"
    )


def test_blocks_keep_their_text() -> None:
    """The words after the language of a block are for the tests that run it. What looks like a link in a block is none."""
    text = "- a\n  - b\n\n```python tour\nrow['a'](docs/tour.md)\n  - c\n```\n"
    assert website.converted("README.md", text) == "- a\n    - b\n\n```python\nrow['a'](docs/tour.md)\n  - c\n```\n"


def test_addresses_of_other_hosts_are_found() -> None:
    """Pages load nothing from other hosts; links to them are allowed."""
    for one in ('<script src="https://x.org/a.js">', '<link rel=stylesheet href="//x.org/a.css">', '<pre class="mermaid">'):
        assert website.LOADED.search(one)
    for one in ('<a href="https://spark.apache.org">', '<script src="assets/a.js">'):
        assert website.LOADED.search(one) is None


def test_the_configuration_names_no_other_host() -> None:
    text = (ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8")
    assert "font: false" in text
    assert re.findall(r"https?://", text) == []
