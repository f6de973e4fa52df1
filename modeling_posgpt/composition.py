"""Several position encodings in one layer: `rotary+fox`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor

from .position_encoding import Place, PositionEncoding


def split_name(name: str) -> list[str]:
    """Return the names of the encodings in `rotary+fox`."""
    return name.split("+")


def list_names(names: Any) -> list[str]:
    """Return the names of all encodings in a `position_embedding_type`, each once: of one name, or of a list for the layers."""
    names = names if isinstance(names, list) else [names]
    return list(dict.fromkeys(part for name in names for part in split_name(str(name))))


def list_parts(encoding: Any) -> Sequence[PositionEncoding]:
    return encoding.parts if isinstance(encoding, Composition) else [encoding]


def check_parts(name: str, parts: Sequence[type[PositionEncoding]]) -> None:
    """Raise ValueError when the encodings of a layer do not work together."""
    if twice := [part for part in split_name(name) if split_name(name).count(part) > 1]:
        raise ValueError(f"position_embedding_type {name!r} names {twice[0]!r} twice; leave one of them out.")
    reading, wide = [each for each in parts if each.history], [each for each in parts if each.is_wide]
    for clashing, reason in (
        (reading, "both read earlier states"),
        (wide and [*wide, *(each for each in parts if each.is_narrow)], "do not take vectors of the same width"),
    ):
        if len(clashing) > 1:
            names = " and ".join(each.__name__ for each in clashing)
            raise ValueError(f"position_embedding_type {name!r}: {names} {reason}; choose one of them.")


class Composition:
    """Several encodings of a layer, whose hooks are called in the order of their names; biases are added.

    It is made anew in each forward pass: some of its parts belong to the layer, and others to the model. Its memo is the list
    of theirs, and `place.shared` the list of what they have prepared.
    """

    def __init__(self, parts: Iterable[PositionEncoding]):
        self.parts = list(parts)
        self.history = max(part.history for part in self.parts)

    def pair(self, place: Place) -> Iterator[tuple[PositionEncoding, Place]]:
        """Yield each part with its own `place`."""
        for part, shared in zip(self.parts, place.shared, strict=True):
            yield part, place._replace(shared=shared)

    def prepare(self, hidden_states: Tensor, place: Place) -> list:
        return [part.prepare(hidden_states, place) for part in self.parts]

    def mix(self, hidden_states: Tensor, previous: Tensor, place: Place) -> Tensor:
        for part, own in self.pair(place):
            hidden_states = part.mix(hidden_states, previous, own) if part.history else hidden_states
        return hidden_states

    def encode(self, query: Tensor, key: Tensor, hidden_states: Tensor, place: Place) -> tuple[Tensor, Tensor, list]:
        memos = []
        for part, own in self.pair(place):
            query, key, memo = part.encode(query, key, hidden_states, own)
            memos.append(memo)
        return query, key, memos

    def relate(self, query: Tensor, key: Tensor, memo: list, place: Place) -> tuple[Tensor, Tensor, Tensor | None]:
        biases = []
        ordered = sorted(zip(self.pair(place), memo, strict=True), key=lambda entry: entry[0][0].relates_last)
        for (part, own), each in ordered:
            query, key, bias = part.relate(query, key, each, own)
            biases += [] if bias is None else [bias]
        return query, key, sum(biases[1:], biases[0]) if biases else None
