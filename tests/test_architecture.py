"""Dependencies point one way: every import under src/mercury is read, and no arrow may go up."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "mercury"

# From the bottom up. A package imports only from lower levels, never from its own.
LEVELS = [
    {"model"},
    {"geo", "wire"},
    {"roads"},
    {"session", "mediator", "detection", "matching", "overlay"},
    {"bus", "java", "net"},
    {"config", "dev", "service"},
    {"adapter", "broker", "client", "matcher", "pipeline", "alerts"},
    {"sim", "moos", "load"},
    {"console", "bench"},
    {"cli"},
]
LEVEL_OF = {package: level for level, packages in enumerate(LEVELS) for package in packages}
CORES = {"session", "mediator", "detection", "matching", "overlay"}
# Stands beside the levels: it may use the bus and the network, and only tests may use it.
TESTING = "testing"
TESTING_LEVEL = LEVEL_OF["bus"] + 1

# Cores in packages that hold shells as well.
CORE_MODULES = {
    "adapter": {
        "addressing", "entities", "interests", "kept_alerts", "kept_content", "match_events",
        "mediator", "moving_clients", "queries", "routing",
    },
    "client": {"moving_entities"},
    "moos": {"bridge", "packet", "settings", "text_forms"},
    "net": {"link", "link_settings"},
}  # fmt: skip

# Cores decide, shells do: a core takes `now` and a seeded generator, and returns what to do.
FORBIDDEN_IN_CORES = {"asyncio", "pyspark", "socket", "sqlite3", "threading", "time"}
SHELLS = {"bus", "net", "service"}  # no core may import these


class Import(NamedTuple):
    """One import: `module` is absolute, `names` is empty for a plain `import module`."""

    line: int
    module: str
    names: tuple[str, ...]
    alias: str = ""


def violations(root: Path) -> list[str]:
    """One sentence for each arrow under `root`, the folder of the package, that may not be."""
    found = []
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        package = relative.parts[0].removesuffix(".py")
        if package in ("__init__", "__main__"):
            continue  # the top modules may import anything
        tree = ast.parse(path.read_text("utf-8"), str(path))
        imports = list(read_imports(tree, [root.name, *relative.parent.parts]))
        wrong = list(wrong_arrows(package, imports, root))
        core_modules = CORE_MODULES.get(package, set())
        if package in CORES or path.stem in core_modules:
            wrong += wrong_in_core(tree, imports)
        if path.stem in core_modules:
            wrong += shells_in_core(package, core_modules, imports)
        found += [f"{relative}:{line}: {sentence}" for line, sentence in sorted(wrong)]
    return found


def read_imports(tree: ast.AST, package_path: list[str]) -> Iterator[Import]:
    """All imports, wherever they stand: in functions and under TYPE_CHECKING too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, (), alias.asname or alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = package_path[: len(package_path) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield Import(node.lineno, module, tuple(alias.name for alias in node.names))


def wrong_arrows(package: str, imports: list[Import], root: Path) -> Iterator[tuple[int, str]]:
    if package not in LEVEL_OF and package != TESTING:
        yield 1, f"{package} is not in LEVELS of tests/test_architecture.py, add it there"
        return
    for line, target in imported_packages(imports, root):
        if target == package:
            continue
        if not target:
            yield line, f"{package} imports the top package, which imports everything"
        elif target == TESTING:
            yield line, f"{package} imports testing, which is for tests only"
        elif target not in LEVEL_OF:
            yield line, f"{target} is not in LEVELS of tests/test_architecture.py, add it there"
        elif LEVEL_OF[target] >= LEVEL_OF.get(package, TESTING_LEVEL):
            same = LEVEL_OF[target] == LEVEL_OF.get(package)
            yield line, f"{package} imports {target}, which is {'beside' if same else 'above'} it"


def imported_packages(imports: list[Import], root: Path) -> Iterator[tuple[int, str]]:
    """Packages of ours that are imported; an empty name is the top package itself."""
    for statement in imports:
        top, _, rest = statement.module.partition(".")
        if top != root.name:
            continue
        if rest:
            yield statement.line, rest.partition(".")[0]
            continue
        for name in statement.names or ("",):
            if (root / name).is_dir() or (root / f"{name}.py").is_file():
                yield statement.line, name
            elif not (name.startswith("__") and name.endswith("__")):  # __version__ is no arrow
                yield statement.line, ""


def wrong_in_core(tree: ast.AST, imports: list[Import]) -> Iterator[tuple[int, str]]:
    names_of_random = set()
    for statement in imports:
        top = statement.module.partition(".")[0]
        if top in FORBIDDEN_IN_CORES:
            yield statement.line, f"a core imports {top}, leave that to a shell"
        if top == "random" and not statement.names:
            names_of_random.add(statement.alias)
        if top == "random" and set(statement.names) - {"Random"}:
            yield statement.line, "a core rolls unseeded dice, pass it a random.Random"
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in names_of_random
            and node.attr != "Random"
        ):
            yield node.lineno, f"a core rolls unseeded dice with random.{node.attr}"


def shells_in_core(
    package: str, core_modules: set[str], imports: list[Import]
) -> Iterator[tuple[int, str]]:
    """Cores import cores: also within a package that holds shells."""
    for statement in imports:
        parts = [*statement.module.split("."), "", ""]
        if parts[0] != "mercury" or not parts[1]:
            continue
        if parts[1] in SHELLS - {package}:
            yield statement.line, f"a core imports {parts[1]}, leave that to a shell"
        elif parts[1] == package and parts[2] not in core_modules:
            yield statement.line, f"a core imports {statement.module}, which is a shell"


def test_arrows_point_one_way() -> None:
    assert violations(SOURCE) == []


def test_the_source_is_found() -> None:
    modules = {path.relative_to(SOURCE).parts[0] for path in SOURCE.rglob("*.py")}
    assert {"model", "wire", "bus", "session", "cli"} <= modules


# The checker itself, on made-up trees.


def check(tmp_path: Path, **modules: str) -> list[str]:
    """Write modules, named `package__module`, into a tree of their own and check it."""
    root = tmp_path / "mercury"
    root.mkdir()
    (root / "__init__.py").write_text("from mercury.cli import main\nimport mercury.testing\n")
    for package in [*LEVEL_OF, TESTING]:
        (root / package).mkdir()
        (root / package / "__init__.py").touch()
    for name, text in modules.items():
        path = root.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return violations(root)


@pytest.mark.parametrize(
    ("package", "text"),
    [
        ("wire", "from mercury.model import errors\nimport mercury.model.message"),
        ("session", "from ..model.errors import MercuryError\nfrom .other import x"),
        ("session", "from . import other\nimport random\ndice = random.Random(1)"),
        ("session", "from random import Random\nimport timeit"),
        ("bus", "import asyncio, sqlite3, time\nfrom mercury import session"),
        ("testing", "from mercury.bus import Bus\nfrom mercury.net import udp"),
        ("cli", "from mercury.console import x\nfrom mercury import __version__, sim"),
        ("adapter", "from mercury.service import x\nfrom mercury.config import y"),
        ("adapter", "import mercurial\nfrom mercury_other import broker"),
        ("adapter", "import asyncio\nfrom mercury.adapter.outbound import Outbound"),
    ],
)
def test_allowed(package: str, text: str, tmp_path: Path) -> None:
    assert check(tmp_path, **{f"{package}__part": text}) == []


@pytest.mark.parametrize(
    ("package", "text", "sentence"),
    [
        ("model", "import mercury.geo.distance", "1: model imports geo, which is above it"),
        ("model", "x = 1\nfrom mercury import geo", "2: model imports geo, which is above it"),
        ("geo", "from mercury.wire import codec", "1: geo imports wire, which is beside it"),
        ("broker", "from ..adapter import x", "1: broker imports adapter, which is beside it"),
        ("broker", "from .. import client", "1: broker imports client, which is beside it"),
        ("service", "import mercury.config", "1: service imports config, which is beside it"),
        (
            "session",
            "def f():\n    from mercury.bus import Bus",
            "2: session imports bus, which is above it",
        ),
        (
            "wire",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import mercury.net as n",
            "3: wire imports net, which is above it",
        ),
        ("sim", "import mercury.testing", "1: sim imports testing, which is for tests only"),
        (
            "cli",
            "from mercury.testing.clock import x",
            "1: cli imports testing, which is for tests only",
        ),
        ("testing", "from mercury.config import x", "1: testing imports config, which is above it"),
        (
            "cli",
            "from mercury import Client",
            "1: cli imports the top package, which imports everything",
        ),
        ("cli", "import mercury", "1: cli imports the top package, which imports everything"),
        (
            "cli",
            "import mercury.weather",
            "1: weather is not in LEVELS of tests/test_architecture.py, add it there",
        ),
        (
            "weather",
            "x = 1",
            "1: weather is not in LEVELS of tests/test_architecture.py, add it there",
        ),
        ("session", "import asyncio.events", "1: a core imports asyncio, leave that to a shell"),
        ("overlay", "from time import time", "1: a core imports time, leave that to a shell"),
        ("matching", "import pyspark.sql as s", "1: a core imports pyspark, leave that to a shell"),
        (
            "mediator",
            "from random import random",
            "1: a core rolls unseeded dice, pass it a random.Random",
        ),
        (
            "detection",
            "import random as r\n\nx = r.uniform(0, 1)",
            "3: a core rolls unseeded dice with random.uniform",
        ),
    ],
)
def test_found(package: str, text: str, sentence: str, tmp_path: Path) -> None:
    assert check(tmp_path, **{f"{package}__part": text}) == [f"{package}/part.py:{sentence}"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("import asyncio", "1: a core imports asyncio, leave that to a shell"),
        ("from time import monotonic", "1: a core imports time, leave that to a shell"),
        ("from mercury.service import now", "1: a core imports service, leave that to a shell"),
        ("import mercury.bus.api", "1: a core imports bus, leave that to a shell"),
        ("import random\nx = random.random()", "2: a core rolls unseeded dice with random.random"),
        (
            "from mercury.adapter.queries import Queries\nimport mercury.adapter.outbound as x",
            "2: a core imports mercury.adapter.outbound, which is a shell",
        ),
        (
            "from .adapter import Adapter",
            "1: a core imports mercury.adapter.adapter, which is a shell",
        ),
    ],
)
def test_a_core_among_shells_is_held_to_its_promise(
    text: str, sentence: str, tmp_path: Path
) -> None:
    assert check(tmp_path, adapter__mediator=text) == [f"adapter/mediator.py:{sentence}"]


def test_the_cores_among_shells_are_there() -> None:
    for package, modules in CORE_MODULES.items():
        assert modules <= {path.stem for path in (SOURCE / package).glob("*.py")}


def test_deep_and_lonely_modules_are_read(tmp_path: Path) -> None:
    assert check(
        tmp_path,
        geo__deep__part="from ...cli import main\nfrom ..other import x",
        lonely="x = 1",
    ) == [
        "geo/deep/part.py:1: geo imports cli, which is above it",
        "lonely.py:1: lonely is not in LEVELS of tests/test_architecture.py, add it there",
    ]
