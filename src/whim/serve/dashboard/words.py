"""Plain words for what a configuration can hold, for people who decide."""

from __future__ import annotations

from typing import NamedTuple

# what a policy does, in words that need no paper; one that is missing goes by its name alone
POLICIES = {
    "adaptive-linucb": "learns by itself whether interests jump, drift or stay",
    "cusum-ucb": "no features; starts over when an arm’s rewards shift",
    "denband": "several models, trusted by how well they did lately",
    "dlinucb": "forgets slowly: recent rewards weigh more",
    "ducb": "no features; recent rewards weigh more",
    "dynamic-linucb": "several models; one that errs is replaced",
    "lints": "explores by drawing from what it believes",
    "linucb-disjoint": "learns as if interests never changed",
    "linucb-hybrid": "never changes its mind; arms share what is common",
    "linucb-uniform": "one model of the items’ features for all arms",
    "linucb-watched": "starts an arm over when a detector finds drift",
    "modified-pslinucb": "starts all arms over at a change",
    "mucb": "no features; compares old and new rewards of each arm",
    "pslinucb-disjoint": "notices when the interest in an arm changes, and learns that arm anew",
    "pslinucb-groups": "the same for very many arms, which share models",
    "pslinucb-hybrid": "the same, and keeps what all arms share",
    "random": "shows anything with equal chance, learns nothing",
    "swlinucb": "learns from the last rewards only",
    "swucb": "no features; learns from the last rewards only",
    "ucb": "no features; learns as if interests never changed",
}
KINDS = {
    "number": "a number", "choice": "one of several values", "flag": "yes or no",
    "hash": "any text", "cyclic": "a number that comes round, such as an hour",
}  # fmt: skip


class Attribute(NamedTuple):
    """How a form asks for an attribute of a feature; ``rare`` ones are folded away."""

    label: str
    hint: str = ""
    kinds: tuple[str, ...] = tuple(KINDS)
    tick: bool = False
    rare: bool = False


ATTRIBUTES = {
    "mean": Attribute("Usual value", "0", ("number",)),
    "scale": Attribute("Usual spread", "1", ("number",)),
    "values": Attribute("Values, with commas", "phone, desktop", ("choice",)),
    "size": Attribute("Dimensions", "16", ("hash",)),
    "period": Attribute("Comes round after", "24", ("cyclic",)),
    "log": Attribute("Skewed: take the logarithm, in units of", "no", ("number",), rare=True),
    "harmonics": Attribute("Waves in that time", "1", ("cyclic",), rare=True),
    "missing": Attribute("A value that is missing tells something", tick=True, rare=True),
    "other": Attribute("So does one that is not listed", "", ("choice",), True, True),
    "words": Attribute("Take each word by itself", "", ("hash",), True, True),
}


def policy_words(name: str) -> str:
    """A policy by its name and what it does.

    >>> policy_words("random")
    'random: shows anything with equal chance, learns nothing'
    """
    return f"{name}: {POLICIES[name]}" if name in POLICIES else name


def attribute_words(name: str) -> Attribute:
    """An attribute of a feature; one that is missing here goes by its name.

    >>> attribute_words("scale").label, attribute_words("new").label
    ('Usual spread', 'new')
    """
    return ATTRIBUTES.get(name, Attribute(name, rare=True))


def kind_words(kind: str) -> str:
    """A kind of feature.

    >>> kind_words("flag"), kind_words("new-kind")
    ('yes or no', 'new-kind')
    """
    return KINDS.get(kind, kind)
