"""What docs/how-to/moos.md shows is what the code takes."""

from __future__ import annotations

import re
from pathlib import Path

from mercury.cli.run.moos import moos
from mercury.config import MoosSettings, load_settings
from mercury.moos import bridge_settings
from mercury.moos.settings import read_mediator_block

TEXT = (Path(__file__).parents[2] / "docs" / "how-to" / "moos.md").read_text("utf-8")


def test_the_two_configurations_say_the_same(tmp_path: Path) -> None:
    [block] = re.findall(r"```\n(ProcessConfig = pMediator\n.*?)```", TEXT, re.DOTALL)
    [toml] = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    path = tmp_path / "mercury.toml"
    path.write_text(toml, "utf-8")
    by_toml = bridge_settings(load_settings(path).moos)
    routes = {"deb": "10.0.0.4:9300", "fin": "10.0.0.5:9300"}
    by_block = MoosSettings.model_validate(
        {**read_mediator_block(block), "vname": "abe", "routes": routes}
    )
    assert bridge_settings(by_block) == by_toml


def test_every_setting_stands_in_the_table() -> None:
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", TEXT, re.MULTILINE))))
    assert set(MoosSettings.model_fields) <= named


def test_the_flags_exist() -> None:
    flags = set(re.findall(r"--([a-z][a-z-]*)", TEXT)) - {"json", "for", "every"}
    assert {flag.replace("-", "_") for flag in flags} <= set(moos.__annotations__)
