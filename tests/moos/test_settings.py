"""The bridge's settings, and every mistake in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from mercury.config import MoosSettings, load_settings
from mercury.model.errors import ConfigurationError
from mercury.moos.settings import (
    Endpoint,
    bridge_settings,
    endpoint,
    read_mediator_block,
    route,
)

ROUTES = {"deb": "10.0.0.4:9200", "fin": "10.0.0.5:9200"}


def test_names_in_any_case_lines_that_add_up_and_comments() -> None:
    found = read_mediator_block(
        "processconfig=PMEDIATOR {\n// nothing\nVName = Abe // us\nMATE=deb\nmates = fin , gus\n"
        "No_Ack_Var = A\nno_ack_vars=B,A\n}\n"
    )
    assert found == {"vname": "Abe", "mates": "deb,fin , gus", "no_ack_vars": "A,B,A"}
    settings = bridge_settings(
        MoosSettings.model_validate({**found, "routes": {**ROUTES, "GUS": "[::1]:1"}})
    )
    assert settings.name == "Abe"
    assert settings.mates == ("deb", "fin", "gus")
    assert settings.no_ack_vars == {"A", "B"}
    assert settings.routes["gus"] == Endpoint("::1", 1)


def test_the_same_names_in_toml(tmp_path: Path) -> None:
    path = tmp_path / "mercury.toml"
    path.write_text(
        "[moos]\nvname = 'abe'\nmates = ['deb', 'fin']\nmate = 'gus'\nno_ack_vars = 'A, B'\n"
        "no_ack_var = 'C'\nmax_tries = 6\nresend_thresh = 3\ngroup = 'blue_team'\n"
        "listen = 9301\n[moos.routes]\ndeb = '10.0.0.4:9200'\n'*' = 'shore:9200'\n"
    )
    settings = bridge_settings(load_settings(path).moos)
    assert settings.mates == ("deb", "fin", "gus")
    assert settings.no_ack_vars == {"A", "B", "C"}
    assert (settings.max_tries, settings.resend_thresh_s) == (6, 3.0)
    assert settings.group == "blue_team"
    assert settings.listen == Endpoint("0.0.0.0", 9301)
    assert settings.routes == {"deb": Endpoint("10.0.0.4", 9200), "*": Endpoint("shore", 9200)}


def test_the_defaults_are_those_of_the_paper() -> None:
    settings = bridge_settings(MoosSettings(community="abe", routes=ROUTES))
    assert (settings.max_tries, settings.resend_thresh_s) == (5, 2.0)
    assert settings.mates == ()
    assert settings.name == settings.community == "abe"


def test_an_unknown_name_in_toml_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "mercury.toml"
    path.write_text("[moos]\nmax_trys = 6\n")
    with pytest.raises(ConfigurationError, match=r"max_trys is not a setting, did you mean moos"):
        load_settings(path)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"vname": None}, "the vehicle needs a name: --name, or vname in [moos]"),
        ({"vname": "a b"}, "the vehicle's name: 'a b' is no name of a vehicle or group"),
        ({"vname": "All"}, "the vehicle's name: 'All' is no name of a vehicle or group"),
        ({"mates": "deb,ABE,DEB"}, "abe is this vehicle, it cannot be its own mate"),
        ({"mates": "deb,gus"}, "there is no route to gus: give --to gus=HOST:PORT"),
        ({"routes": {}}, "there is nowhere to send to: give --to MATE=HOST:PORT"),
        ({"routes": {"deb": "there"}}, "route of deb: 'there' is not HOST:PORT"),
        ({"routes": {"deb": "there:0"}}, "route of deb: 0 is no port"),
        ({"routes": {"deb": "there:70000"}}, "route of deb: 70000 is no port"),
        ({"routes": {"d,b": "there:1"}}, "a route's mate: 'd,b' is no name of a vehicle or group"),
        ({"listen": "here"}, "the port to listen on: '0.0.0.0:here' is not HOST:PORT"),
        ({"local": ":9200"}, "the community's pShare: ':9200' is not HOST:PORT"),
        ({"no_ack_vars": "A B"}, "'A B' in no_ack_vars is no name of a variable"),
    ],
)
def test_mistakes_in_settings(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        bridge_settings(MoosSettings.model_validate({"vname": "abe", "routes": ROUTES, **given}))
    assert str(caught.value) == sentence


def test_through_an_adapter_or_a_relay_no_mate_needs_a_route() -> None:
    with_adapter = MoosSettings(vname="abe", mates="deb", adapter="udp://127.0.0.1:7400")
    assert bridge_settings(with_adapter).mates == ("deb",)
    by_relay = MoosSettings(vname="abe", mates="deb", routes={"*": "shore:9200"})
    assert bridge_settings(by_relay).mates == ("deb",)


def test_a_route_of_the_command_line() -> None:
    assert route("ben=host:9301") == ("ben", "host:9301")
    for wrong in ("ben", "=host:1", "ben="):
        with pytest.raises(ConfigurationError, match=r"is not MATE=HOST:PORT"):
            route(wrong)
    assert endpoint("0.0.0.0:0", "here", free_port=True).port == 0
