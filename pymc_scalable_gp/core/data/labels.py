"""Labels of rows, as pandas and xarray have them: rows go by their place, and labels tell a mix-up."""


def _labels(value, name: str) -> tuple:
    """Labels of rows, None where there are none, and how they are written."""
    if not (hasattr(value, "dims") and hasattr(value, "indexes")):
        return getattr(value, "index", None), f"{name}.index"
    dim = next(iter(value.dims), None)
    return value.indexes.get(dim), f"{name}.indexes[{dim!r}]"


def refuse_another_order(rows, values, name: str = "y", of: str = "X") -> None:
    """Raise ValueError for `values` whose rows are those of `rows`, by their labels, in another order."""
    (first, where), (second, _) = _labels(rows, of), _labels(values, name)
    if not all(type(labels).__module__.split(".")[0] == "pandas" for labels in (first, second)):
        return
    if len(first) == len(second) and not first.equals(second) and set(first) == set(second):
        raise ValueError(
            f"{name} has the index of {of} in another order, and rows go by their place: give "
            f"{name}.loc[{where}]"
        )
