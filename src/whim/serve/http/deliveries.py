"""``Deliveries``: webhooks by one replica at a time, the one that leads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from whim.serve.jobs.webhooks import Webhooks
from whim.serve.state.served import AllServedChanges

if TYPE_CHECKING:
    from whim.serve.http.service import Service


class Deliveries:
    """The webhooks of a service, while it leads; a service without replicas always does."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._hooks: Webhooks | None = None
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Read how far they are, if this one leads."""
        service = self._service
        if not service.engine.leads:
            return
        served = AllServedChanges([part.store for part in service.engine.parts])
        cursors = await asyncio.to_thread(service.engine.cursors)
        self._hooks = Webhooks(
            service.settings, service.data, served.after, lambda: served.names,
            service.metrics.webhook, cursors=cursors, counted=served.is_first,
        )  # fmt: skip

    def start(self) -> None:
        """Deliver."""
        if self._hooks is not None:
            self._service.spawn(self._hooks.run())

    def lead(self, leads: bool) -> None:
        """From now on this replica does what only one should, or it does not any more."""
        words = "this replica leads" if leads else "this replica does not lead any more"
        self._service.log.info(words)
        if self._service.ready:
            self._service.spawn(self._hand_over())

    async def _hand_over(self) -> None:
        async with self._turn:
            await self.close()
            await self.open()
            self.start()

    def wake(self, space: str) -> None:
        """There is a change of this space to deliver."""
        if self._hooks is not None:
            self._hooks.wake(space)

    def lags(self) -> dict[str, float]:
        """By host, the age in seconds of the oldest change that is not delivered yet."""
        return {} if self._hooks is None else self._hooks.lags()

    async def close(self) -> None:
        """End; what is not delivered is delivered later, or by another."""
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            await hooks.close()
