"""`mercury send`: an alert from the command line."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Annotated

import typer

from mercury.bus import FromTime
from mercury.cli.common import command, reading
from mercury.cli.common.command import option
from mercury.client import ServiceEndpoint
from mercury.client.arguments import LONGEST_S
from mercury.config import Settings
from mercury.mediator.explain import address_text
from mercury.model import topics
from mercury.model.area import Area, HeadingSector
from mercury.model.errors import ConfigurationError
from mercury.model.message import Address, Message, Priority
from mercury.service import now_us
from mercury.service.service import STATUS_INTERVAL_S


def send(
    text: Annotated[str, typer.Argument(help="Text of the alert")],
    config: command.ConfigOption = None,
    bus: command.BusOption = None,
    circle: Annotated[str | None, option("To clients in a circle", "LAT,LON,RADIUS_M")] = None,
    area: Annotated[str | None, option("To clients in an area", "GEOJSON")] = None,
    heading: Annotated[
        str | None, option("Only those heading this way; default all", "DEGREES,HALF_WIDTH")
    ] = None,
    everyone: Annotated[bool, option("To all clients", names="--everyone")] = False,
    to: Annotated[str | None, option("To one client", "IDENTITY")] = None,
    group: Annotated[str | None, option("To the clients of a group", "NAME")] = None,
    kind: Annotated[str, option("Kind of event it tells of")] = "notice",
    priority: Annotated[int, option("9 is the most urgent", min=0, max=9)] = int(Priority.WARNING),
    validity: Annotated[
        float,
        option("Seconds for which it also reaches those who enter", min=0.001, max=LONGEST_S),
    ] = 60.0,
    as_json: command.JsonOption = False,
) -> None:
    """Send an alert to an area, to everyone, to a group or to one client."""
    settings = command.settings_for(config, bus__uri=bus)
    if not text:
        raise ConfigurationError('the text is empty: say what to tell, such as "Road flooded"')
    destinations: list[Area | Address] = []
    if circle is not None:
        destinations.append(reading.circle(circle))
    if area is not None:
        destinations.append(reading.geojson_area(area, "--area"))
    if everyone:
        destinations.append(Address.everyone())
    if to is not None:
        destinations.append(Address.client(to))
    if group is not None:
        destinations.append(Address.group(group))
    if len(destinations) != 1:
        raise ConfigurationError("say to whom, once: --circle, --area, --everyone, --to or --group")
    destination = destinations[0]
    if heading is not None:
        if not isinstance(destination, Area):
            raise ConfigurationError("--heading goes with --circle or --area")
        expected = f"expected degrees,half_width, not {heading!r}"
        sector = HeadingSector(*reading.numbers(heading, 2, expected))
        destination = replace(destination, heading=sector)
    message, heard = command.run(_send(settings, destination, text, kind, priority, validity))
    if as_json:
        command.print_json({"id": str(message.id), "sent_us": message.sent_us,
                          "expires_us": message.expires_us})  # fmt: skip
    else:
        to_whom = address_text(message.destination)
        command.progress.print(f"sent to {to_whom}, valid for {validity:g} s")
        if not heard:
            command.progress.print("no adapter reports on this bus: nobody hears it until one runs")
        print(message.id)


async def _send(
    settings: Settings, to: Area | Address, text: str, kind: str, priority: int, validity: float
) -> tuple[Message, bool]:
    """Send it; returns also whether an adapter has reported lately."""
    command.require_bus(settings)
    async with ServiceEndpoint(settings.bus.uri, "command-line") as endpoint:
        lately = FromTime(now_us() - int(2.5 * STATUS_INTERVAL_S * 1e6))
        with contextlib.closing(endpoint.bus.subscribe((topics.STATUS,), start=lately)) as status:
            parts = [record.key for record in await status.read_now()]
        alert = endpoint.alert(to, kind=kind, text=text, priority=priority, validity_s=validity)
        return (await alert).message, any(part.startswith(b"adapter:") for part in parts)
