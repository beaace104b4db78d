"""Publish fuel prices with the places they hold for, as a service on the bus.

python examples/fuel_service.py --every 2
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random

import mercury

# Four stations in Salt Lake City: name, brand, place.
STATIONS = [
    ("State Street", "X", (40.7560, -111.8882)),
    ("Temple Square", "X", (40.7704, -111.8919)),
    ("Sugar House", "Y", (40.7246, -111.8580)),
    ("Airport", "Z", (40.7899, -111.9791)),
]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bus", default="embedded:mercury.db", help="the bus the brokers read")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between rounds")
    parser.add_argument("--count", type=int, help="end after so many rounds")
    parser.add_argument("--seed", type=int, default=1, help="same seed, same prices")
    options = parser.parse_args()
    dice = random.Random(options.seed)

    # A service speaks to the bus directly: it has no position and needs no adapter.
    async with mercury.ServiceEndpoint(options.bus, "fuel-prices") as service:
        for round_number in itertools.count(1):
            for name, brand, place in STATIONS:
                price = round(dice.uniform(1.40, 1.80), 2)
                # Subscribers filter by these values, and by how near the place is.
                await service.publish(
                    "fuel",
                    {"station": name, "brand": brand, "fuel_price": price},
                    position=place,
                    expires_in_s=60.0,  # an old price helps nobody
                )
                print(f"{name} ({brand}): {price:.2f}", flush=True)
            if round_number == options.count:
                break
            await asyncio.sleep(options.every)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
    except mercury.MercuryError as error:
        raise SystemExit(f"fuel_service: {error}") from None
