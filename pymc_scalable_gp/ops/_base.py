"""The base of the Ops: float64 tensors whose numbers of dimensions and shapes a gufunc signature tells."""

import re
from functools import cache, wraps

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.type import integer_dtypes


@cache
def parse_signature(signature: str) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """Names of the lengths of each input, and of each output."""
    needed, made = (re.findall(r"\(([^)]*)\)", side) for side in signature.split("->"))
    return tuple(tuple(tuple(re.findall(r"\w+", one)) for one in side) for side in (needed, made))


class LengthError(ValueError):
    """Inputs of an Op whose lengths do not fit together.

    Arguments: what the Op needs, the names of lengths that must agree and, except from machine code,
    the lengths.
    """

    def __str__(self):
        needs, names, *lengths = self.args
        if not lengths:
            return f"{needs}; arrays differ in {' or '.join(names.split())}"
        known = {}
        for name, length in zip(names.split(), lengths, strict=True):
            if known.setdefault(name, length) != length:
                return f"{needs}; got {name} = {known[name]} and {length}"
        return needs


_ONCE = "for second derivatives, as of find_hessian, take differences of the gradient"


class GufuncOp(Op):
    """An Op known by ``gufunc_signature``, such as ``"(m),(m,k)->(m,k)"``.

    From it follow the checks of the inputs' dimensions and, on each back-end, of their lengths, static
    output shapes, and `infer_shape`; inputs are cast to float64, or to int64 where `discrete` names their
    places, and all outputs are float64. An Op whose inputs may have several numbers of dimensions
    overrides :meth:`signature`, one that knows lengths itself :meth:`lengths`. Options that `shared` names,
    integers or tables of them, are arguments of its machine code, which is the same for all of them, not
    constants in it. Where `differentiable_outputs` are the first few, a gradient in others is refused.
    A pullback returns the cotangents of the inputs that are not :meth:`fixed`.
    """

    __props__ = ()
    discrete: tuple[int, ...] = ()
    shared: tuple[str, ...] = ()
    differentiable_outputs: tuple[int, ...] | None = None

    def __init__(self, *props, **named):
        """Values of ``__props__``, in their order or by name; the class has those that are left out."""
        for name, value in (dict(zip(self.__props__, props, strict=False)) | named).items():
            setattr(self, name, value)

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if perform := cls.__dict__.get("perform"):

            @wraps(perform)
            def checked(self, node, inputs, output_storage):
                self.check_lengths(inputs)
                with np.errstate(all="ignore"):  # as in machine code
                    perform(self, node, inputs, output_storage)

            cls.perform = checked
        if pullback := cls.__dict__.get("pullback"):

            @wraps(pullback)
            def of_some(self, inputs, outputs, cotangents):
                self.check_cotangents(cotangents)
                found, fixed = iter(pullback(self, inputs, outputs, cotangents)), self.fixed(inputs)
                return [disconnected_type() if i in fixed else next(found) for i in range(len(inputs))]

            cls.pullback = of_some

    def signature(self, inputs) -> str:
        """Signature for these inputs."""
        return self.gufunc_signature

    def lengths(self) -> dict[str, int]:
        """Lengths that do not come from the inputs, by their names in the signature."""
        return {}

    def sums(self) -> dict[str, tuple[str, int]]:
        """Lengths that are another one and a number, by their names: that one's name, and the number."""
        return {}

    def summed(self, known) -> list[tuple[str, int]]:
        """Names and lengths that follow from others, `known` by name."""
        pairs = self.sums().items()
        return [(name, known[other] + more) for name, (other, more) in pairs if other in known]

    def options(self) -> tuple:
        """What its functions take after the inputs: the values of its props."""
        return tuple(getattr(self, name) for name in self.__props__)

    def cast(self, place: int, tensor):
        """The tensor in the type that the Op works on."""
        dtype = "int64" if place in self.discrete else "float64"
        return tensor if tensor.dtype == dtype else tensor.astype(dtype)

    def fixed(self, inputs) -> tuple[int, ...]:
        """Places of the inputs without a gradient."""
        return self.discrete

    def connection_pattern(self, node):
        fixed, count = self.fixed(node.inputs), len(node.outputs)
        return [[place not in fixed] * count for place in range(len(node.inputs))]

    def make_node(self, *inputs):
        inputs = [pt.as_tensor_variable(x) for x in inputs]
        inputs = [self.cast(place, x) for place, x in enumerate(inputs)]
        needed, made = parse_signature(self.signature(inputs))
        if [x.ndim for x in inputs] != [len(names) for names in needed]:
            got = ", ".join(str(x.ndim) for x in inputs)
            raise TypeError(f"{self.needs(inputs)}; got {got} dimensions")
        known = self._static(inputs, needed)
        shapes = [tuple(known.get(name) for name in names) for names in made]
        return Apply(self, inputs, [pt.tensor(dtype="float64", shape=shape) for shape in shapes])

    def infer_shape(self, node, input_shapes):
        needed, made = parse_signature(self.signature(node.inputs))
        found = {}
        for names, shape in zip(needed, input_shapes, strict=True):
            for name, length in zip(names, shape, strict=True):
                found.setdefault(name, length)
        found |= self._static(node.inputs, needed)
        found = dict(self.summed(found)) | found
        return [tuple(found[name] for name in names) for names in made]

    def needs(self, inputs) -> str:
        """The shapes that it works on, in words."""
        needed, _ = parse_signature(self.signature(inputs))
        shapes = ", ".join(f"({', '.join(names)})" for names in needed)
        return f"{type(self).__name__} needs inputs of shapes {shapes}"

    def named_lengths(self, arrays) -> list[tuple[str, int]]:
        """Names in the signature and lengths of all axes, and those that follow from them."""
        needed, _ = parse_signature(self.signature(arrays))
        named = zip(arrays, needed, strict=True)
        found = [pair for x, names in named for pair in zip(names, np.shape(x), strict=True)]
        return found + self.summed(dict(found))

    def check_lengths(self, arrays) -> None:
        """Raise ValueError if lengths of one name differ."""
        known, found = dict(self.lengths()), self.named_lengths(arrays)
        if any(known.setdefault(name, length) != length for name, length in found):
            names, lengths = zip(*self.lengths().items(), *found, strict=True)
            raise LengthError(self.needs(arrays), " ".join(names), *lengths)

    def pullback(self, inputs, outputs, cotangents):
        """Raise NotImplementedError: most Ops that compute a gradient have none themselves."""
        raise NotImplementedError(f"{type(self).__name__} has no derivatives: {_ONCE}")

    def check_cotangents(self, cotangents) -> None:
        """Raise ValueError if anything flows back from outputs that cannot be differentiated."""
        kept = self.differentiable_outputs
        if kept is not None and any(map(connected, cotangents[len(kept) :])):
            first = "the first output" if len(kept) == 1 else f"the first {len(kept)} outputs"
            raise ValueError(f"only {first} of {type(self).__name__} can be differentiated; {_ONCE}")

    def _static(self, inputs, needed) -> dict[str, int]:
        """Lengths known now; every input must agree on them."""
        known, named = dict(self.lengths()), zip(inputs, needed, strict=True)
        pairs = [pair for x, names in named for pair in zip(names, x.type.shape, strict=True)]
        found = [(name, length) for name, length in pairs if length is not None]
        for name, length in found + self.summed(dict(found)):
            if known.setdefault(name, length) != length:
                raise TypeError(f"{self.needs(inputs)}; got {name} = {known[name]} and {length}")
        return known


def integers(name: str, x):
    """A tensor of integers; TypeError for others, which an Op would cut to them."""
    x = pt.as_tensor_variable(x)
    if x.dtype not in integer_dtypes:
        raise TypeError(f"{name} must hold integers, got {x.dtype}")
    return x


def store(output_storage, found) -> None:
    """Put what an Op's function returned, a tuple or the only output, in the outputs' places."""
    found = found if isinstance(found, tuple) else (found,)
    for storage, value in zip(output_storage, found, strict=True):
        storage[0] = np.asarray(value)


def connected(cotangent) -> bool:
    """Whether anything flows back from this output."""
    return not isinstance(cotangent.type, DisconnectedType)
