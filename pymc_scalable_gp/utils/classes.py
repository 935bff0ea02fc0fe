"""Which public classes have what: their names in errors come from the classes themselves."""

from sys import modules
from types import FunctionType
from typing import ClassVar


class Listed:
    """Base of classes that say what they have, so that errors can name those that have it.

    `abilities` maps an ability to the condition under which the class has it, "" where there is none. Only
    a class that states its own is named.
    """

    abilities: ClassVar[dict[str, str]] = {}

    @classmethod
    def names_with(cls, ability: str, last: str = "or") -> str:
        """The classes with an ability and their conditions, such as "A, B with rank= or C"."""
        found = sorted(
            f"{kind.__name__} {condition}".rstrip()
            for kind in _subclasses(Listed)
            for own, condition in vars(kind).get("abilities", {}).items()
            if own == ability
        )
        return ", ".join(found[:-1]) + (f" {last} " if found[:-1] else "") + "".join(found[-1:])


def _subclasses(kind: type) -> set[type]:
    found = set(kind.__subclasses__())
    return found.union(*map(_subclasses, found))


def as_typed(kind: type) -> type:
    """Have Python name the methods in errors as users type them, ``gp.loo()``, whatever class has them.

    For one class of a module, in which it is known as ``gp``: pickle looks methods up by these names.
    """
    vars(modules[kind.__module__])["gp"] = kind
    for name, value in vars(kind).items():
        if isinstance(value, FunctionType) and not name.startswith("_"):
            value.__qualname__ = f"gp.{name}"
    return kind
