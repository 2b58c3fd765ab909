"""A made-up HetRec folder: the real one's file names, headings, encodings and line ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np

GENRES = ("death-metal", "synth_pop", "hip hop", "m\u00fasica cl\u00e1sica")
WORDS = ("seen live", "favourites", "male-vocals", "00s")


def make(folder: Path, *, seed: int = 0, n_users: int = 40, n_artists: int = 30) -> Path:
    """Users and artists of four genres; a user hears and tags mostly their own genre."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    # ids have gaps, as in the original
    artists = np.sort(rng.choice(np.arange(1, 3 * n_artists), n_artists, replace=False))
    users = np.sort(rng.choice(np.arange(2, 3 * n_users), n_users, replace=False))
    genre_of = rng.integers(len(GENRES), size=n_artists)
    listening, tagging = [], []
    for user in users.tolist():
        likes = np.where(genre_of == rng.integers(len(GENRES)), 8.0, 1.0)
        likes[:10] *= 3  # the popular ones
        heard = rng.choice(n_artists, 10, replace=False, p=likes / likes.sum())
        listening += [(user, int(artists[a]), int(rng.integers(1, 5000))) for a in heard]
        for a in rng.choice(heard, int(rng.integers(2, 9)), replace=False).tolist():
            month, year = int(rng.integers(1, 13)), int(rng.integers(2006, 2011))
            some = rng.choice(len(WORDS), int(rng.integers(1, 3)), replace=False).tolist()
            tags = [int(genre_of[a]) + 1, *(len(GENRES) + 1 + w for w in some)]
            tagging += [(user, int(artists[a]), tag, 1, month, year) for tag in tags]
    texts = list(enumerate((*GENRES, *WORDS, "never used"), start=1))
    write(folder / "user_artists.dat", "userID artistID weight", listening)
    write(folder / "tags.dat", "tagID tagValue", texts)
    write(folder / "user_taggedartists.dat", "userID artistID tagID day month year", tagging)
    return folder


def write(path: Path, heading: str, rows: list[tuple[object, ...]]) -> None:
    """Tabs between fields, CRLF at line ends, ISO-8859-1."""
    lines = [heading.replace(" ", "\t"), *("\t".join(map(str, row)) for row in rows)]
    path.write_bytes("".join(line + "\r\n" for line in lines).encode("iso-8859-1"))


def rows(path: Path) -> list[list[str]]:
    """The fields of each row, the slow and plain way."""
    text = path.read_bytes().decode("iso-8859-1").replace("\r\n", "\n")
    return [line.split("\t") for line in text.split("\n")[1:] if line]
