"""Configurations of spaces over time, as the log has them."""

from __future__ import annotations

from typing import NamedTuple

from whim.serve.log.committed import CommittedLog, StoreError
from whim.serve.log.rows import DECODERS, ConfigRow, Kind
from whim.serve.wire import SpaceConfig


class ConfigHistory(NamedTuple):
    """The configuration wanted last, and those that were in force with the row each began at.

    They differ while the wanted one is being built.
    """

    wanted: ConfigRow
    in_force: list[tuple[int, ConfigRow]]

    @property
    def now(self) -> ConfigRow:
        """The one in force now."""
        return self.in_force[-1][1]

    @property
    def served(self) -> list[tuple[int, int, SpaceConfig]]:
        """Row, version and configuration of all that were in force, without the end of a space."""
        return [(seq, c.version, c.config) for seq, c in self.in_force if c.config is not None]


def config_histories(reader: CommittedLog) -> dict[int, ConfigHistory]:
    """The history of every space that there ever was, by its number."""
    histories: dict[int, ConfigHistory] = {}
    for row in reader.configs():
        config_row: ConfigRow = DECODERS[row.kind].decode(row.body)
        known = histories.get(row.space)
        before = 0 if known is None else known.wanted.version
        if row.kind == Kind.BUILT and config_row.version < before:
            continue  # another version was asked for before it was built, and it never served
        if config_row.version != before + (row.kind == Kind.CONFIG):
            raise StoreError(
                f"{reader.path.name} must hold every change of {config_row.name}, got version "
                f"{config_row.version} after {before}."
            )
        in_force = [] if known is None else known.in_force
        if known is None or row.kind == Kind.BUILT or config_row.config is None:
            in_force = [*in_force, (row.seq, config_row)]
        histories[row.space] = ConfigHistory(config_row, in_force)
    return histories


def open_spaces(reader: CommittedLog) -> dict[str, tuple[int, ConfigHistory]]:
    """The spaces that are not retired, by name: number and configurations."""
    return {
        history.now.name: (number, history)
        for number, history in config_histories(reader).items()
        if history.now.config is not None
    }
