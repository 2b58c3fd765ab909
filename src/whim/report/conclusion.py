"""What a report begins with: at most three sentences, made from the results, and one figure.

The first sentence is what the leading result found, then come the targets that were reached or
missed, then what makes the numbers weaker: quick runs, and results with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from whim.experiments.result import ExperimentResult

SENTENCES = 3  # at most, of a conclusion and of an experiment's summary
_NAMED = 3  # missed targets that are named, the others are counted
# the project's main claim: regret in a changing world, against the paper's test and the oracle
_MAIN = ("beyond/power", "synthetic/disjoint", "beyond/detection")

_BREAK = re.compile(r"(?<=[.!?…])(?<!\bp\.)(?<!\bal\.)\s+(?=[^a-z\s])")

Sentence = list[tuple[str, int | None]]  # its parts, each with the result that it is about


class Conclusion(NamedTuple):
    """Sentences, and the place of the result whose first figure carries them."""

    sentences: list[Sentence]
    lead: int | None


def sentences(text: str) -> list[str]:
    """The sentences of a text; a full stop inside a number or a name ends none.

    >>> sentences("It saves 0.5 times as much (p. 3). The paper: 30 %.")
    ['It saves 0.5 times as much (p. 3).', 'The paper: 30 %.']
    """
    return [one for one in _BREAK.split(text.strip()) if one]


def conclude(results: Sequence[ExperimentResult]) -> Conclusion:
    """The conclusion of a page; that of a single result is its summary."""
    lead = _lead(results)
    if len(results) == 1:
        own = sentences(results[0].summary)[:SENTENCES]
        return Conclusion([[(one, None)] for one in own], lead)
    rest = [sentence for sentence in (_targets(results), _caveat(results)) if sentence]
    order = sorted(range(len(results)), key=lambda i: i != lead)  # the leading one first
    claims: list[Sentence] = [
        [(sentences(results[i].summary)[0], None)] for i in order if results[i].summary.strip()
    ]
    return Conclusion(claims[: SENTENCES - len(rest)] + rest, lead)


def brief(warning: str) -> str:
    """A warning's first words, for where it has been said in full above.

    >>> brief("Made with a stand-in: a made-up community, not LastFM's data.")
    'Made with a stand-in'
    """
    return re.split(r"[:;,.](?:\s|$)", warning, maxsplit=1)[0]


def is_quick(one: ExperimentResult) -> bool:
    """Whether it had few repetitions; what reproduces it says so."""
    return "--quick" in one.command.split()


def _lead(results: Sequence[ExperimentResult]) -> int | None:
    drawn = [i for i, one in enumerate(results) if one.figures]

    def rank(i: int) -> tuple[int, bool]:
        main = _MAIN.index(results[i].id) if results[i].id in _MAIN else len(_MAIN)
        return main, bool(results[i].warning)

    return min(drawn, key=rank, default=None)


def _targets(results: Sequence[ExperimentResult]) -> Sentence:
    every = [(what, met, i) for i, one in enumerate(results) for what, met in one.targets]
    missed: Sentence = [(what, i) for what, met, i in every if not met]
    if not every:
        return []
    if not missed:
        only = "The one target is" if len(every) == 1 else f"All {len(every)} targets are"
        return [(f"{only} reached.", None)]
    head = f"{len(every) - len(missed)} of {many(len(every), 'target')} are reached; missed: "
    sentence: Sentence = [(head, None)]
    for k, part in enumerate(missed[:_NAMED]):
        sentence += [("; ", None), part] if k else [part]
    more = len(missed) - _NAMED
    return [*sentence, (f"; and {many(more, 'other')}." if more > 0 else ".", None)]


def _caveat(results: Sequence[ExperimentResult]) -> Sentence:
    parts, total = [], len(results)
    quick = sum(map(is_quick, results))
    if quick:
        which = f"All {total}" if quick == total else f"{quick} of {total}"
        parts.append(f"{which} results are of quick runs, with few repetitions")
    warned = [one.warning for one in results if one.warning]
    if warned:
        why = " or ".join(dict.fromkeys(f"“{brief(warning)}”" for warning in warned))
        parts.append(f"{len(warned)} of {total} results are marked ⚠: {why}")
    return [(f"{'; '.join(parts)}.", None)] if parts else []


def many(number: int, noun: str) -> str:
    """Such as ``2 targets``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
