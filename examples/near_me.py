"""Watch taxis come near a passenger and leave: both sides move, and only changes are told.

python examples/near_me.py --taxis 3
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib

import mercury

HERE = (40.7608, -111.8910)
METRE = 1 / 111_200  # of latitude, in degrees


async def drive(adapter: str, number: int, steps: int, pause_s: float) -> None:
    """A taxi comes down the street from the north, passes us and goes on."""
    lat, lon = HERE
    first_m = 1000.0 + 100.0 * number
    identity = f"taxi-{number}"
    async with mercury.connect(
        adapter, identity=identity, position=(lat + first_m * METRE, lon)
    ) as taxi:
        # It goes where the client goes, until that is gone.
        await taxi.publish_moving("taxi", {"seats": number})
        for step in range(1, steps + 1):
            north_m = first_m - 2.0 * first_m * step / steps
            taxi.move(lat + north_m * METRE, lon, report=True)
            await asyncio.sleep(pause_s)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--adapter", default="udp://127.0.0.1:7400", help="where to connect")
    parser.add_argument("--taxis", type=int, default=3, help="how many, with 1, 2, ... seats")
    parser.add_argument("--seats", type=int, default=2, help="how many we need")
    parser.add_argument("--near", type=float, default=500.0, help="metres around us")
    parser.add_argument("--steps", type=int, default=20, help="reports of each taxi")
    parser.add_argument("--every", type=float, default=0.2, help="seconds between them")
    options = parser.parse_args()

    async with mercury.connect(options.adapter, identity="passenger", position=HERE) as me:
        taxis = me.near("taxi", radius_m=options.near, where=f"seats >= {options.seats}")
        await taxis.declared(10.0)
        print(f"waiting for {options.seats} seats within {options.near:.0f} m", flush=True)
        driving = asyncio.gather(
            *(
                drive(options.adapter, number, options.steps, options.every)
                for number in range(1, options.taxis + 1)
            )
        )
        # Each taxi with enough seats comes and goes once, however often it reports.
        left = max(0, options.taxis - options.seats + 1)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(options.steps * options.every + 10.0):
                async for match in taxis:
                    # "taxi-3/taxi": the client's name, and what it calls the publication.
                    name = match.publication.partition("/")[0]
                    seats = match.values["seats"]
                    print(f"{match.event_type.name.lower()} {name} ({seats} seats)", flush=True)
                    left -= match.event_type is mercury.EventType.EXIT
                    if left <= 0:
                        break
        await driving


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
    except mercury.MercuryError as error:
        raise SystemExit(f"near_me: {error}") from None
