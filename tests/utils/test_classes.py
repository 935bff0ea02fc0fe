"""What classes have, as errors name them, and methods as users type them."""

from pymc_scalable_gp.utils.classes import Listed, as_typed


class Alone(Listed):
    abilities = {"test of names": ""}


class Heir(Alone):
    """It says nothing of its own."""


class Grandchild(Heir):
    abilities = {"test of names": "with rank=", "test of names too": ""}


class Other(Listed):
    abilities = {"test of names": ""}


def test_classes_that_have_something_are_named_with_their_conditions():
    assert Listed.names_with("test of names") == "Alone, Grandchild with rank= or Other"
    assert Other.names_with("test of names", "and") == "Alone, Grandchild with rank= and Other"
    assert Listed.names_with("test of names too") == "Grandchild"
    assert Listed.names_with("test of") == ""


def test_methods_are_named_as_typed():
    @as_typed
    class Typed:
        kept = len

        def shown(self):
            pass

        def _hidden(self):
            pass

    assert Typed.shown.__qualname__ == "gp.shown"
    assert Typed._hidden.__qualname__.endswith("Typed._hidden")
    assert globals().pop("gp") is Typed  # where pickle looks for it
