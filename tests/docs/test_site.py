"""The site is built without a warning, its links hold, and nothing is fetched from elsewhere."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import typer
from docs.walkthrough import ROOT

import mercury
from mercury.cli.main import app
from mercury.config import Settings
from mercury.pipeline.history.tables import TABLES


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.repeated: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []  # what a browser loads by itself

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            if values["id"] in self.ids:
                self.repeated.add(values["id"])
            self.ids.add(values["id"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "link" and values.get("rel") not in ("canonical", "next", "prev"):
            self.fetched.append(values["href"])
        if tag in ("script", "img", "iframe", "source", "video") and "src" in values:
            self.fetched.append(values["src"])


def _pages(site: Path) -> dict[Path, _Page]:
    pages = {}
    for path in site.rglob("*.html"):
        page = _Page()
        page.feed(path.read_text("utf-8"))
        pages[path] = page
    return pages


def test_every_link_leads_to_a_page_and_a_place_in_it(site: Path) -> None:
    pages = _pages(site)
    assert len(pages) > 35
    broken = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or not link:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            is_there = target in pages or target.exists()
            anchor = unquote(parts.fragment)
            if is_there and anchor and anchor != "__top" and target in pages:
                is_there = anchor in pages[target].ids
            if not is_there:
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_no_id_is_used_twice_in_a_page(site: Path) -> None:
    repeated = {path.name: page.repeated for path, page in _pages(site).items() if page.repeated}
    assert repeated == {}


def test_what_is_made_from_the_code_is_linked(site: Path) -> None:
    """A path of the sources is of no use in the site."""
    for path in (site / "reference").glob("*.html"):
        assert re.findall(r"docs/[a-z-]+/[a-z-]+\.md", path.read_text("utf-8")) == [], path.name


def test_search_works_from_a_disk(site: Path) -> None:
    assert (site / "search" / "search_index.js").read_text("utf-8").startswith("var __index = {")
    page = (site / "index.html").read_text("utf-8")
    assert page.index("assets/iframe-worker.js") < page.index("assets/javascripts/bundle.")


def test_all_arguments_of_a_client_are_explained() -> None:
    explained = re.findall(r"^        (\w+): ", mercury.Client.__doc__ or "", re.MULTILINE)
    assert explained == list(inspect.signature(mercury.Client).parameters)


def test_nothing_is_fetched_from_the_internet(site: Path) -> None:
    fetched = {
        name for page in _pages(site).values() for name in page.fetched if urlsplit(name).netloc
    }
    assert fetched == set()
    for path in (*site.rglob("*.css"), *site.rglob("*.svg")):
        text = path.read_text("utf-8")
        assert "url(http" not in text.replace('"', "").replace("'", ""), path
        assert "@import" not in text, path


def test_the_reference_has_everything(site: Path) -> None:
    def page(name: str) -> str:
        return (site / "reference" / f"{name}.html").read_text("utf-8")

    root = typer.main.get_command(app)
    commands = page("commands")
    for name in root.list_commands(root.make_context("m", [], resilient_parsing=True)):  # type: ignore[attr-defined]
        assert f'id="mercury-{name}"' in commands, name
    settings = page("settings")
    for table, field in Settings.model_fields.items():
        assert f'id="{table}"' in settings, table
        for name in field.annotation.model_fields:  # type: ignore[union-attr]
            assert name in settings, name
    for kind in Settings().detection.kinds:
        assert f"<code>{kind}</code>" in settings, kind
    api = page("api")
    for name in mercury.__all__:
        assert re.search(rf'id="mercury[\w.]*\.{name}"', api), name
    assert "ServiceEndpoint.alert" in api
    for name in (*mercury.Kind.__members__, *mercury.EventKind.__members__, *mercury.Match._fields):
        assert f"<code>{name}</code>" in api, name
    wire = page("wire")
    for name in ("Envelope", "Telemetry", "Deliveries"):
        assert f'id="{name.lower()}"' in wire
    assert "expires_us" in wire
    for name in TABLES:
        assert f'id="{name}"' in page("tables"), name
