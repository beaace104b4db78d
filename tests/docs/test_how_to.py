"""The how-to guides do what they say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import typer
import yaml
from docs.walkthrough import ROOT, Block, blocks, walking

from mercury.cli.main import app
from mercury.config import Settings


def _in(folder: str) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / folder).glob("*.md"))


PAGES = ["README.md", "docs/tutorial.md", *_in("how-to")]
ALL_PAGES = [*PAGES, *_in("explanation"), *_in("reference")]
RUN = ["back-up", "detection-rule", "monitor", "service"]
RUN_WITH_SPARK = ["import"]


@pytest.mark.parametrize("name", RUN)
def test_each_guide_runs_as_written(name: str, tmp_path: Path) -> None:
    with walking(tmp_path) as walk:
        walk.run(f"docs/how-to/{name}.md")


@pytest.mark.jvm
@pytest.mark.parametrize("name", RUN_WITH_SPARK)
def test_a_guide_that_needs_spark(name: str, tmp_path: Path) -> None:
    with walking(tmp_path) as walk:
        walk.run(f"docs/how-to/{name}.md")


def test_what_is_run_or_not_is_said() -> None:
    """Each command or program of these pages is run by a test, or says why not."""
    silent = [
        f"{page}:{block.line}"
        for page in PAGES
        for block in blocks(page)
        if block.language in ("sh", "python") and not block.not_run and not _is_run(page)
    ]
    assert silent == []


def _is_run(page: str) -> bool:
    return page in ("README.md", "docs/tutorial.md") or Path(page).stem in RUN + RUN_WITH_SPARK


def _commands(block: Block) -> list[list[str]]:
    """The words of each command line that calls mercury."""
    lines = re.sub(r"\\\n\s*", " ", block.text).splitlines()
    words = [re.sub(r"\s#.*", "", line).split() for line in lines]
    found = []
    for line in words:
        at = max((n for n, word in enumerate(line) if word.endswith("mercury")), default=-1)
        if at == 0 or (at > 0 and (line[0] == "sudo" or "exec" in line)):
            found.append(line[at + 1 :])
    return found


def test_every_command_and_flag_that_is_shown_exists() -> None:
    root = typer.main.get_command(app)
    context = root.make_context("mercury", [], resilient_parsing=True)
    checked = 0
    for page in ALL_PAGES:
        for block in blocks(page):
            if block.language != "sh":
                continue
            for words in _commands(block):
                command = root
                while words and not words[0].startswith("-") and hasattr(command, "list_commands"):
                    assert words[0] in command.list_commands(context), f"{page}: {words}"
                    _, command, words = command.resolve_command(context, words)
                known = {
                    flag
                    for parameter in command.params
                    for flag in (*parameter.opts, *parameter.secondary_opts)
                } | {"--help", "--version"}
                flags = {word.partition("=")[0] for word in words if word.startswith("--")}
                assert flags <= known, f"{page}:{block.line}: {flags - known}"
                checked += 1
    assert checked > 40


def test_code_fits_the_site() -> None:
    """What is output is broken there (`docs/assets/site.css`), and the README is not part of it."""
    for page in ALL_PAGES[1:]:
        text = (ROOT / page).read_text("utf-8")
        for language, code in re.findall(r"^ *```(\w*).*\n((?s:.*?))^ *```$", text, re.MULTILINE):
            if language not in ("output", "console"):
                assert [line for line in code.splitlines() if len(line) > 100] == [], page


def test_every_configuration_that_is_shown_is_valid() -> None:
    checked = 0
    for page in ALL_PAGES:
        for block in blocks(page):
            if block.language == "toml":
                Settings.model_validate(tomllib.loads(block.text))
                checked += 1
            elif block.language == "yaml":
                assert yaml.safe_load(block.text)
                checked += 1
    assert checked >= 7


def test_the_files_that_are_named_are_there() -> None:
    for page in ALL_PAGES:
        text = (ROOT / page).read_text("utf-8")
        for name in re.findall(r"(?:deploy|tests|examples|src)/[\w/@.-]+\.[a-z]+", text):
            assert (ROOT / name).exists(), f"{page} names {name}"


def test_the_pages_that_the_code_names_are_there() -> None:
    named = {
        name
        for folder in ("src", "tests", "deploy", "examples")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".toml", ".yaml", ".proto")
        for name in re.findall(r"docs/[a-z_/-]+\.md", path.read_text("utf-8"))
    }
    assert len(named) > 5
    assert {name for name in named if not (ROOT / name).exists()} == set()
