"""A made-up shop's log as people have it: categories, gaps, an hour, a skewed price; truth known.

Visitors come with a device, a city, an age that some do not tell, the local hour and the price of
what is in their basket, which is log-normal. Four offers are shown at random. What a visitor clicks
depends on all of it: on the logarithm of the price, on the evening, on whether the age is known. A
rate, which is the same for everybody, is there as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from whim.types import F64

OFFERS = ("coupon", "loan", "snacks", "tour")
DEVICES = ("phone", "desk", "tablet")
CITIES = ("Oslo", "Bergen", "Trondheim", "Stavanger", "Narvik")
COLUMNS = "age,device,city,hour,price,rate"


class Visits(NamedTuple):
    """Visitors, as columns, and the chance of each offer to be clicked."""

    columns: dict[str, list[Any]]
    chances: F64

    def by_hand(self) -> F64:
        """The features that somebody who knows the shop would make."""
        c = self.columns
        hour = np.array(c["hour"])
        age = np.array([np.nan if a is None else a for a in c["age"]])
        price = np.log(np.array(c["price"]))
        places: list[Any] = [np.ones(len(hour)), price - 4.0]
        places += [np.array(c["device"]) == device for device in DEVICES]
        places += [np.array(c["city"]) == city for city in CITIES]
        places += [np.sin(hour * np.pi / 12), np.cos(hour * np.pi / 12)]
        places += [np.sin(hour * np.pi / 6), np.cos(hour * np.pi / 6)]
        places += [np.nan_to_num((age - 42) / 14), np.isnan(age)]
        return np.column_stack(places).astype(np.float64)


def visits(n: int, seed: int) -> Visits:
    """So many visitors."""
    rng = np.random.default_rng([seed, 20])
    device = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    city = rng.choice(5, n, p=[0.4, 0.25, 0.2, 0.1, 0.05])
    age = np.clip(rng.normal(42, 14, n), 16, 90).round()
    hidden = rng.random(n) < 0.25
    hour = (rng.normal(17, 5, n).round() % 24).astype(int)
    price = np.exp(rng.normal(4, 1.2, n)).round(2) + 0.01
    dear = (np.log(price) - 4) / 1.2
    evening = np.cos((hour - 20) * np.pi / 12)
    young = np.where(hidden, 0.0, (42 - age) / 14)
    worth = np.column_stack(
        [
            0.30 - 0.16 * dear + 0.04 * (device == 0),
            0.25 + 0.17 * dear - 0.12 * hidden - 0.04 * young,
            0.27 + 0.17 * evening + 0.06 * (device == 0) - 0.04 * (city == 3),
            0.26 - 0.05 * evening + 0.14 * (device == 1) + 0.11 * (city == 1) + 0.05 * young,
        ]
    )
    columns: dict[str, list[Any]] = {
        "age": [None if h else a for h, a in zip(hidden.tolist(), age.tolist(), strict=True)],
        "device": [DEVICES[i] for i in device.tolist()],
        "city": [CITIES[i] for i in city.tolist()],
        "hour": hour.tolist(),
        "price": price.tolist(),
        "rate": [1234.567] * n,
    }
    return Visits(columns, np.clip(worth, 0.02, 0.98))


def write_csv(file: Path, seen: Visits, seed: int) -> tuple[list[str], F64]:
    """The visits as a CSV with a random offer shown to each; what was shown, and the clicks."""
    rng = np.random.default_rng([seed, 21])
    n = len(seen.chances)
    shown = rng.integers(4, size=n)
    clicks = (rng.random(n) < seen.chances[np.arange(n), shown]).astype(np.float64)
    names = [OFFERS[i] for i in shown.tolist()]
    frame = pl.DataFrame(seen.columns | {"shown": names, "click": clicks.astype(int).tolist()})
    frame.write_csv(file)
    return names, clicks
