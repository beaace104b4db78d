"""`mercury moos`: a MOOS vehicle's mediator, and its connection to Mercury."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from mercury.cli.common import command, reading
from mercury.cli.common.command import option
from mercury.cli.common.report_view import report_view
from mercury.moos import MoosService, bridge_settings, read_moos_file
from mercury.moos.settings import ANY, route

_REFRESH_S = 0.5
_SHOWN = 20  # rows of a table that people can take in


def moos(
    config: command.ConfigOption = None,
    moos_file: Annotated[
        Path | None, option("Read the pMediator block of this .moos file; default none")
    ] = None,
    name: Annotated[str | None, option("Vehicle's name; default from --moos-file")] = None,
    listen: Annotated[
        str | None, option("UDP port for its pShare and mates; default 9300", "[HOST:]PORT")
    ] = None,
    local: Annotated[str | None, option("Its pShare; default 127.0.0.1:9200", "HOST:PORT")] = None,
    to: Annotated[
        list[str] | None, option("Address of a mate, * of all others", "MATE=HOST:PORT")
    ] = None,
    group: Annotated[str | None, option("Group of this vehicle; default none")] = None,
    mates: Annotated[str | None, option("Its vehicles; default all of --to", "A,B")] = None,
    no_ack_vars: Annotated[
        str | None, option("Variables sent once, not acknowledged; default none", "A,B")
    ] = None,
    max_tries: Annotated[int | None, option("Most retries of a message; default 5")] = None,
    resend_thresh: Annotated[float | None, option("Seconds until a retry; default 2")] = None,
    adapter: Annotated[str | None, option("Adapter; default none", "udp://HOST:PORT")] = None,
    position: Annotated[
        str | None, option("Position until the vehicle reports one; default none", "LAT,LON")
    ] = None,
    seconds: command.ForOption = None,
    every_s: Annotated[
        float, option("Seconds between the reports of --json", min=0.1, names="--every")
    ] = 5.0,
    as_json: Annotated[
        bool, option("Print a report as JSON at each --every, and at the end", names="--json")
    ] = False,
) -> None:
    """Bridge a MOOS community to other vehicles (its mates) and to Mercury.

    Acknowledges, retries and removes duplicates as pMediator does, in the datagrams of pShare.
    """
    given: dict[str, object] = {} if moos_file is None else {**read_moos_file(moos_file)}
    flags = {
        "vname": name,
        "listen": listen,
        "local": local,
        "routes": dict(map(route, to)) if to else None,
        "group": group,
        "mates": mates,
        "no_ack_vars": no_ack_vars,
        "max_tries": max_tries,
        "resend_thresh": resend_thresh,
        "adapter": adapter,
    }
    given |= {key: value for key, value in flags.items() if value is not None}
    settings = command.settings_for(
        config, **{f"moos__{key}": value for key, value in given.items()}
    )
    service = MoosService(
        bridge_settings(settings.moos),
        adapter=settings.moos.adapter,
        position=None if position is None else reading.position(position),
        session=command.session_of(settings),
    )
    command.run(_run(service, seconds, every_s if as_json else None))


async def _run(service: MoosService, seconds: float | None, json_every_s: float | None) -> None:
    stop = command.stop_event()
    await service.open()
    host = service.settings.listen.host
    command.progress.print(
        f"{service.settings.name} listens on {host}:{service.port}"
        f" and posts to {service.settings.local}"
    )
    try:
        if json_every_s is not None:
            await command.watch(stop, seconds, json_every_s, lambda: _print_json(service))
        elif command.progress.is_terminal:
            with Live(console=command.progress, transient=True, auto_refresh=False) as live:

                def show() -> None:
                    live.update(_view(service), refresh=True)

                await command.watch(stop, seconds, _REFRESH_S, show)
        else:
            await command.wait(stop, seconds)
    finally:
        await service.close()
    if json_every_s is not None:
        _print_json(service, final=True)
    else:
        Console(highlight=False).print(_view(service))


def _print_json(service: MoosService, *, final: bool = False) -> None:
    command.print_json({**_report_json(service), "final": final})


def _report_json(service: MoosService) -> dict[str, Any]:
    settings, bridge, uplink = service.settings, service.bridge, service.uplink
    numbers = service.report().as_dict()
    counts = ("sent", "resent", "acknowledged", "received", "repeated")
    return {
        "name": settings.name,
        "uptime_s": round(service.time_s, 3),
        "config": {
            "resend_thresh": settings.resend_thresh_s,
            "max_tries": settings.max_tries,
            "group": settings.group,
            "named_mates": list(settings.mates),
            "mates": bridge.mates,
            "no_ack_vars": sorted(settings.no_ack_vars),
            "listen": str(settings.listen),
            "local": str(settings.local),
            "routes": {mate: str(where) for mate, where in sorted(settings.routes.items())},
        },
        **{name: numbers[name] for name in counts},
        "posted": bridge.posted,
        "bad": bridge.bad,
        "dropped": bridge.dropped,
        "mates": numbers["peers"],
        "variables": numbers["topics"],
        "acks": numbers["acks"],
        "events": numbers["events"],
        "uplink": None
        if uplink is None
        else {"adapter": uplink.uri, "connected": uplink.connected, **uplink.counters},
    }


def _view(service: MoosService) -> Group:
    """The same for a terminal, as pMediator shows it (§8, Listing 8.3)."""
    settings, bridge, uplink = service.settings, service.bridge, service.uplink
    mates = ", ".join(bridge.mates) + (" …" if ANY in settings.routes else "")
    lines = {
        "mates": mates + (f" (group {settings.group})" if settings.group else ""),
        "repeated": f"after {settings.resend_thresh_s:g} s, {settings.max_tries} times at most",
        "sent once": ", ".join(sorted(settings.no_ack_vars)),
        "bad": _reasons(bridge.bad),
        "passed over": _reasons(bridge.dropped),
    }
    if uplink is not None:
        state = "connected to" if uplink.connected else "seeks"
        counts = ", ".join(f"{name} {count}" for name, count in uplink.counters.items())
        lines["Mercury"] = f"{state} {uplink.uri}   {counts}"
    about = "\n".join(f"{name:>12}: {line}" for name, line in lines.items() if line)
    title = Text(f"mercury moos {settings.name}   {service.time_s:.0f} s", style="bold")
    return Group(title, Text(about), report_view(service.report(), "{:.2f} s".format, _SHOWN))


def _reasons(counts: dict[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in sorted(counts.items()))
