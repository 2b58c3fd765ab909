"""``Listeners``: a made-up music community, written as files of the HetRec 2011 LastFM data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from whim import checks


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Users and artists of a few tastes: who hears whom, and how artists are tagged.

    Each user mixes tastes and each artist belongs to one with some of the others; a user hears
    an artist the more likely the more their tastes agree and the more popular the artist is.
    Tags name tastes, with some that say nothing. Stands in where the real data are not at hand;
    it knows no time and no change by itself: protocols make changes by the order of users.

    Parameters
    ----------
    n_users, n_artists, n_tags
        How many of each.
    tastes
        How many tastes there are.
    heard
        Artists that a user listens to.
    """

    n_users: int = 400
    n_artists: int = 60
    n_tags: int = 120
    tastes: int = 8
    heard: int = 12

    def __post_init__(self) -> None:
        for name in ("n_users", "n_artists", "n_tags", "tastes", "heard"):
            checks.integer(name, getattr(self, name), 1)
        checks.number("heard", self.heard, most=self.n_artists)

    def describe(self) -> dict[str, Any]:
        """The kind of world, its parameters, and one sentence on what it is."""
        what = "Made-up listeners and artists of a few tastes, in the files of HetRec LastFM."
        return {"kind": type(self).__name__, **asdict(self), "what": what}

    def write(self, folder: str | Path, *, seed: int) -> Path:
        """Write ``user_artists.dat``, ``user_taggedartists.dat`` and ``tags.dat``."""
        rng = np.random.default_rng(checks.integer("seed", seed, 0))
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        users = rng.dirichlet(np.full(self.tastes, 0.3), self.n_users)
        artists = rng.dirichlet(np.full(self.tastes, 0.2), self.n_artists)
        popular = rng.lognormal(0.0, 0.6, self.n_artists)
        appeal = (users @ artists.T) ** 2 * popular
        tag_taste = rng.integers(self.tastes + 1, size=self.n_tags)  # the last says nothing
        heard, tagged = [], []
        for u in range(self.n_users):
            chance = appeal[u] / appeal[u].sum()
            chosen = rng.choice(self.n_artists, self.heard, replace=False, p=chance)
            for a in chosen.tolist():
                heard.append((u + 2, a + 1, 1 + int(rng.lognormal(5.5, 1.2))))
                if rng.random() < 0.4:
                    weight = np.append(artists[a], 0.2)[tag_taste]
                    tag = int(rng.choice(self.n_tags, p=weight / weight.sum()))
                    month = int(rng.integers(12)) + 1
                    tagged.append((u + 2, a + 1, tag + 1, 1, month, int(rng.integers(2006, 2012))))
        _table(target / "user_artists.dat", "userID artistID weight", heard)
        _table(target / "user_taggedartists.dat", "userID artistID tagID day month year", tagged)
        _table(
            target / "tags.dat",
            "tagID tagValue",
            (
                (i + 1, f"word{i} taste{taste}" if taste < self.tastes else f"word{i}")
                for i, taste in enumerate(tag_taste.tolist())
            ),
        )
        return target


def _table(path: Path, columns: str, rows: Iterable[tuple[object, ...]]) -> None:
    lines = ["\t".join(columns.split()), *("\t".join(map(str, row)) for row in rows)]
    path.write_text("\r\n".join(lines) + "\r\n", "latin-1")
