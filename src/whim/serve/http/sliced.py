"""``SlicedDecoder``: a long body is decoded item by item, so that nobody waits for all of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import msgspec

from whim.serve.http.turns import Turns


class SlicedDecoder:
    """Decodes what ``takes`` is as msgspec does, its long list ``field`` in slices.

    The first pass checks all but the items of the list, which it only finds: that takes a tenth of
    the time.
    """

    def __init__(self, takes: type[msgspec.Struct], field: str) -> None:
        fields = {f.name: f for f in msgspec.structs.fields(takes)}
        self._takes, self._field, self._name = takes, field, fields[field].encode_name
        kind: Any = fields[field].type
        rules: tuple[Any, ...] = ()
        if get_origin(kind) is Annotated:
            kind, *metas = get_args(kind)
            rules = tuple(metas)
        (item,) = get_args(kind)
        raw: Any = Annotated[(list[msgspec.Raw], *rules)] if rules else list[msgspec.Raw]
        found = msgspec.defstruct(
            takes.__name__,
            [(f.name, raw if f.name == field else f.type, _like(f)) for f in fields.values()],
            kw_only=True,
            forbid_unknown_fields=True,
        )
        self._find, self._decode = msgspec.json.Decoder(found), msgspec.json.Decoder(item)

    async def decode(self, raw: bytes, turns: Turns) -> Any:
        """The body; what is wrong with it raises as if it were decoded at once."""
        found = await turns.run(lambda: self._find.decode(raw))
        values = {name: getattr(found, name) for name in self._takes.__struct_fields__}
        values[self._field] = await turns.collect(self._items(values[self._field]))
        return self._takes(**values)

    def _items(self, parts: list[msgspec.Raw]) -> Iterator[Any]:
        for i, part in enumerate(parts):
            try:
                yield self._decode.decode(part)
            except msgspec.ValidationError as error:
                where = f"$.{self._name}[{i}]"
                what, at, path = str(error).rpartition(" - at `$")
                text = f"{what}{at[:-1]}{where}{path}" if at else f"{error} - at `{where}`"
                raise msgspec.ValidationError(text) from None


def _like(field: Any) -> Any:
    """A field's name in JSON and its default."""
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=field.default_factory, name=field.encode_name)
    return msgspec.field(default=field.default, name=field.encode_name)
