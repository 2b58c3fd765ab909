r"""The format of a saved policy: JSON and raw arrays in one file, sealed by a digest.

    bytes  0..8    b"whim\x00pol"
    bytes  8..12   format version, little-endian uint32
    bytes 12..20   length n of the JSON, little-endian uint64
    then           n bytes of JSON (UTF-8): class, parameters, arms, random stream, and for each
                   array its name, dtype, shape and offset
    then           the arrays' bytes, little-endian, C order
    last 32 bytes  SHA-256 of everything before

Nothing is pickled. A file that was cut short or altered does not match its digest; one that a
newer whim wrote says so by its version.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from whim.errors import InvalidInputError, StateFileError
from whim.types import ArmId

FORMAT = 1
DELAYED = "delayed"  # the class of a file of ``Delayed``
_MAGIC = b"whim\x00pol"
_HEAD = struct.Struct("<8sIQ")
_SEAL = 32
_DTYPES: dict[str, np.dtype[Any]] = {
    "f8": np.dtype("<f8"),
    "i8": np.dtype("<i8"),
    "u1": np.dtype("u1"),
}


def encode_id(arm: ArmId) -> list[Any]:
    """An id with its type, for JSON.

    >>> encode_id("a"), encode_id(7), encode_id(("a", 7))
    (['s', 'a'], ['i', 7], ['t', [['s', 'a'], ['i', 7]]])
    """
    if type(arm) is str:
        return ["s", arm]
    if type(arm) is int:
        return ["i", arm]
    if type(arm) is float:
        return ["f", arm.hex()]
    if type(arm) is bytes:
        return ["b", arm.hex()]
    if type(arm) is tuple:
        return ["t", [encode_id(part) for part in arm]]
    raise InvalidInputError(
        f"arm id must be str, int, float, bytes or a tuple of them to be saved, got {arm!r}."
    )


def decode_id(coded: list[Any]) -> ArmId:
    """The id that ``encode_id`` wrote."""
    kind, value = coded
    if kind == "t":
        return tuple(decode_id(part) for part in value)
    return {"s": str, "i": int, "f": float.fromhex, "b": bytes.fromhex}[kind](value)  # type: ignore[operator, no-any-return]


def encode_value(value: Any) -> Any:
    """A parameter for JSON, which has no infinity.

    >>> encode_value(0.5), encode_value(math.inf), encode_value({"drift": 0.5})
    (0.5, {'float': 'inf'}, {'dict': {'drift': 0.5}})
    """
    if isinstance(value, dict):
        return {"dict": {name: encode_value(part) for name, part in value.items()}}
    finite = not isinstance(value, float) or math.isfinite(value)
    return value if finite else {"float": repr(value)}


def decode_value(value: Any) -> Any:
    """The parameter that ``encode_value`` wrote."""
    if not isinstance(value, dict):
        return value
    if "dict" in value:
        return {name: decode_value(part) for name, part in value["dict"].items()}
    return float(value["float"])


def pack(header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> bytes:
    """One sealed byte string of a JSON header and named arrays."""
    entries, blobs, offset = [], [], 0
    for name, array in arrays.items():
        code = f"{array.dtype.kind}{array.dtype.itemsize}"
        blob = np.ascontiguousarray(array, _DTYPES[code]).tobytes()
        entries.append({"name": name, "dtype": code, "shape": array.shape, "offset": offset})
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps({**header, "arrays": entries}, allow_nan=False).encode()
    body = b"".join([_HEAD.pack(_MAGIC, FORMAT, len(text)), text, *blobs])
    return body + hashlib.sha256(body).digest()


def unpack(
    data: bytes, source: str, *, delayed: bool = False
) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """The header and arrays that ``pack`` sealed; ``source`` names the file in errors.

    It must be of a policy; or, for ``delayed``, may be of decisions that wait.
    """
    if data[:8] != _MAGIC:
        raise StateFileError(f"{source} must be a saved policy, got a file of another kind.")
    if len(data) < _HEAD.size + _SEAL:
        raise StateFileError(f"{source} must be complete, got a file cut short.")
    _, version, length = _HEAD.unpack_from(data)
    if version > FORMAT:
        raise StateFileError(
            f"{source} must be of format {FORMAT} or older, got {version}: a newer whim wrote it."
        )
    if version < 1:
        raise StateFileError(f"{source} must be of format 1 or newer, got {version}.")
    if hashlib.sha256(data[:-_SEAL]).digest() != data[-_SEAL:]:
        raise StateFileError(f"{source} must match its digest: it was cut short or altered.")
    start = _HEAD.size + length
    header = json.loads(data[_HEAD.size : start])
    if header.get("class") == DELAYED and not delayed:
        raise StateFileError(
            f"{source} must hold a policy, got decisions that wait for their rewards: read them "
            "with whim.Delayed.load, or whim.Delayed.from_bytes."
        )
    arrays = {}
    for entry in header.pop("arrays"):
        dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
        flat = np.frombuffer(data, dtype, math.prod(shape), start + entry["offset"])
        arrays[entry["name"]] = flat.reshape(shape).astype(dtype.newbyteorder("="))
    return header, arrays


def must_fit(
    name: str, array: npt.NDArray[Any], shape: tuple[int, ...] | None, dtype: np.dtype[Any]
) -> None:
    """Refuse, with ``ValueError``, an array that is not of the kind that a policy has there."""
    if array.dtype != dtype or (shape is not None and array.shape != shape):
        raise ValueError(f"{name[1:]} must be {dtype} of shape {shape}, got {array.shape}")
