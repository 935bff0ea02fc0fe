"""Faults by rule: what each comparison, number, default, seed, guard and sign of a file may be instead."""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple


class Fault(NamedTuple):
    """Bytes `start` to `end` of a file, and what takes their place."""

    file: str
    line: int
    rule: str
    start: int
    end: int
    new: bytes


COMPARISONS = {
    ast.Lt: (b"<", b">="), ast.LtE: (b"<=", b">"), ast.Gt: (b">", b"<="), ast.GtE: (b">=", b"<"),
    ast.Eq: (b"==", b"!="), ast.NotEq: (b"!=", b"=="), ast.Is: (b"is", b"is not"),
    ast.IsNot: (b"is not", b"is"), ast.In: (b"in", b"not in"), ast.NotIn: (b"not in", b"in"),
}  # fmt: skip
# Of counts, where one more or less is another answer; of other numbers a boundary has no width.
BY_ONE = {
    ast.Lt: (b"<", b"<="), ast.LtE: (b"<=", b"<"), ast.Gt: (b">", b">="), ast.GtE: (b">=", b">"),
}  # fmt: skip
COUNT = re.compile(rb"\blen\(|\.(ndim|size|shape)\b|^-?\d+$|^(n|d|r|m|rank|count|rows)$")
SIGNS = {ast.Add: (b"+", b"-"), ast.Sub: (b"-", b"+"), ast.Mult: (b"*", b"/"), ast.Div: (b"/", b"*")}
EXTREMES = {
    a: b
    for pair in ("min max", "minimum maximum", "argmin argmax", "nanmin nanmax", "any all")
    for a, b in (pair.split(), pair.split()[::-1])
}
LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)

# What is left out, and why. Files:
FILES = {
    r"testing\.py": "the checks themselves",
    r"ops/_(numba|jax|kernels|pruning|small|elementwise)\.py": (
        "how Ops reach Numba and JAX: the copies run on Python, which `check_op` compares with those"
    ),
    r"advice/(costs|machine)\.py": "measured speeds, which no test holds fast",
}
# Functions, by name:
FUNCTIONS = {r"__repr__|__str__|describe": "words", r"plot_\w+": "looks of a figure"}
# Functions, by decorator:
DECORATORS = {r"register_(numba|jax)|intrinsic|overload|njit|lower_builtin": "as those files"}
# Calls:
CALLS = {
    r"warn|say|fill|(\w*\.)?\w*[Pp]rogress|\w*Error|\w*Warning": "words and progress bars",
    r"(\w+\.)*(Assert|isinstance|getattr|hasattr)": "words, types and names",
}
# Constants, by name:
CONSTANTS = {
    r"_?\w*(BLOCK|ROWS|ENTRIES|PAIRS|CHUNK|BYTES|WORK|COLUMNS|PERIOD|PRODUCT|FEW|LIMIT)\w*": (
        "how much is done at a time, or by which of two equal ways: speed"
    ),
    r"_(TRIALS|FORMAT)|GIB": "any number serves",
}
# Keyword arguments, by name:
KEYWORDS = {
    r"progressbar|stacklevel|label|figsize|width|copy|borrow|trust_input|check_finite|overwrite_\w+|"
    r"frozen|eq|repr|slots|strict|inline|cache|maxsize|exist_ok": "speed, words, bookkeeping"
}


def _reason(table: dict[str, str], name: str) -> str | None:
    return next((why for pattern, why in table.items() if re.fullmatch(pattern, name)), None)


def left_out(node: ast.AST) -> str | None:
    """Why a node and what is in it has no mutants, or None."""
    match node:
        case ast.FunctionDef(name=name, decorator_list=decorators):
            found = _reason(FUNCTIONS, name)
            known = (re.split(r"[(.]", ast.unparse(d))[0] for d in decorators)
            return found or next(filter(None, (_reason(DECORATORS, k) for k in known)), None)
        case ast.Call(func=func):
            return _reason(CALLS, ast.unparse(func))
        case ast.Assign(targets=[ast.Name(id=name)]) if name.isupper():
            return _reason(CONSTANTS, name)
        case ast.keyword(arg=str(name)):
            return _reason(KEYWORDS, name)
        case ast.Raise() | ast.JoinedStr() | ast.Assert() | ast.ImportFrom():
            return "words"
        case ast.BinOp(op=ast.Pow(), left=ast.Constant()):
            return "a size in powers of two"
    return None


class _Walker:
    """Faults of one file, in the order of its lines."""

    def __init__(self, file: str, source: bytes):
        self.file, self.source = file, source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def _start(self, node) -> int:
        return self.starts[node.lineno - 1] + node.col_offset

    def _end(self, node) -> int:
        return self.starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node) -> bytes:
        return self.source[self._start(node) : self._end(node)]

    def _fault(self, rule, node, start, end, new) -> Fault:
        return Fault(self.file, node.lineno, rule, start, end, new)

    def _whole(self, rule, node, new: bytes) -> Fault:
        return self._fault(rule, node, self._start(node), self._end(node), new)

    def _between(self, rule, left, right, old: bytes, new: bytes) -> Iterator[Fault]:
        """The operator between two operands."""
        start, end = self._end(left), self._start(right)
        found = re.search(rb"(?<!\w)" + re.escape(old).replace(rb"\ ", rb"\s+") + rb"(?!\w)",
                          self.source[start:end])  # fmt: skip
        if found:
            at = slice(start + found.start(), start + found.end())
            yield self._fault(rule, right, at.start, at.stop, new)

    def walk(self, node) -> Iterator[Fault]:
        """Faults of the node and all below it."""
        if left_out(node):
            return
        yield from self._of(node)
        defaults = self._defaults(node)
        for default in defaults:
            yield from self._constant("default", default)
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and child not in defaults:
                    yield from self.walk(child)

    @staticmethod
    def _defaults(node) -> list:
        """Constants that stand for an argument that is left out."""
        found = []
        if isinstance(node, ast.arguments):
            found = [*node.defaults, *filter(None, node.kw_defaults)]
        if isinstance(node, ast.ClassDef):
            found = [line.value for line in node.body if isinstance(line, ast.AnnAssign)]
        return [value for value in found if isinstance(value, ast.Constant)]

    def _of(self, node) -> Iterator[Fault]:
        match node:
            case ast.Compare(left=left, ops=ops, comparators=others):
                for op, a, b in zip(ops, [left, *others], others, strict=False):
                    counted = any(COUNT.search(self._text(side)) for side in (a, b))
                    table = BY_ONE if counted and type(op) in BY_ONE else COMPARISONS
                    yield from self._between("comparison", a, b, *table[type(op)])
            case ast.BoolOp(op=op, values=[first, second, *_]):
                words = (b"and", b"or") if isinstance(op, ast.And) else (b"or", b"and")
                yield from self._between("boolean", first, second, *words)
            case ast.UnaryOp(op=ast.Not()):
                yield self._fault("boolean", node, self._start(node), self._start(node) + 3, b"")
            case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
                yield self._fault("sign", node, self._start(node), self._start(node) + 1, b"")
            case ast.BinOp(op=op, left=left, right=right) if type(op) in SIGNS:
                if not any(map(_is_text, (left, right))):
                    yield from self._between("sign", left, right, *SIGNS[type(op)])
            case ast.AugAssign(op=op, target=target, value=value) if type(op) in SIGNS:
                yield from self._between("sign", target, value, *SIGNS[type(op)])
            case ast.If(test=test, body=body, orelse=[]) if isinstance(body[-1], LEAVES) or _warns(body):
                if not isinstance(test, ast.Constant):
                    yield self._whole("guard", test, b"False")
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name) if name in EXTREMES:
                end = self._end(node)
                yield self._fault(
                    "extreme", node, end - len(name), end, EXTREMES[name].encode()
                )  # fmt: skip
            case ast.Call(func=ast.Attribute(attr="default_rng"), args=[seed]):
                new = b"None" if isinstance(seed, ast.Constant) else b"0"
                yield self._whole("seed", seed, new)
            case ast.keyword(value=ast.Constant(value=bool())):
                yield from self._constant("default", node.value)
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                yield from self._constant("number", node)

    def _constant(self, rule, node) -> Iterator[Fault]:
        value = node.value
        if isinstance(value, bool):
            new = not value
        elif isinstance(value, int):
            new = value + 1
        elif isinstance(value, float):
            # Twice a tolerance is as good; ten thousand times it is another one.
            new = 1.0 if value == 0.0 else value * (1e4 if abs(value) < 1e-3 else 2.0)
        else:
            return
        yield self._whole(rule, node, repr(new).encode())


def _is_text(node) -> bool:
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _warns(body) -> bool:
    first = body[0]
    return isinstance(first, ast.Expr) and ast.unparse(first).startswith(("warn(", "warnings.warn("))


def faults(file: str, source: bytes) -> list[Fault]:
    """All faults of one file, named `file` from the package on."""
    if _reason(FILES, file):
        return []
    return list(_Walker(file, source).walk(ast.parse(source)))
