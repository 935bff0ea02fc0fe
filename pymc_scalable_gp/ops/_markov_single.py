"""One Matern process with one feature: the filter and its adjoint with a name for each number.

The recursions of `markov_columns`, and those of the density row by row, written out for states (q,): what a
row costs is then arithmetic alone.
"""

import numpy as np

from pymc_scalable_gp.ops._lowrank_terms import LOG_2PI
from pymc_scalable_gp.ops._markov_steps import DRIVE, FACTORIAL
from pymc_scalable_gp.ops._numba import from_source


def _prior(q):
    """Stationary covariance, by places."""
    p = q - 1

    def entry(a, b):
        up, to = p - a, p - b
        value = DRIVE[p] * FACTORIAL[up + to] / 2.0 ** (up + to + 1)
        return float(value / (FACTORIAL[up] * FACTORIAL[to]))

    return {(a, b): entry(a, b) for a in range(q) for b in range(q)}


class _Names:
    """Lines of code for q states."""

    def __init__(self, q):
        self.q, self.places = q, range(q)
        self.upper = [(a, b) for a in self.places for b in self.places[a:]]
        self.prior = _prior(q)

    @staticmethod
    def at(name, a, b):
        """An entry of a symmetric matrix."""
        return f"{name}{min(a, b)}{max(a, b)}"

    def state(self):
        """Names of mean and covariance."""
        return [f"m{a}" for a in self.places] + [f"C{a}{b}" for a, b in self.upper]

    def step(self):
        """The transition's numbers, unless they are those of the step before."""
        powers = [f"t{k} = t{k - 1} * u / {k}.0" for k in range(2, self.q)]
        lines = ["last = dt[i]", "u = rate * last", "d = np.exp(-u)", "dd = d * d", "t1 = u"]
        return ["if dt[i] != last:", *(f"    {line}" for line in [*lines, *powers])]

    def predict(self, mean=True):
        """From (m, C) to (m, B), ``E = B - v P``."""
        q, lines = self.q, []
        lines += [f"D{a}{b} = C{a}{b} - variance * {self.prior[a, b]!r}" for a, b in self.upper]
        for a in self.places:
            for b in self.places:
                terms = [f"t{c - a} * {self.at('D', c, b)}" for c in range(a + 1, q)]
                lines.append(f"H{a}{b} = " + " + ".join([self.at("D", a, b), *terms]))
        for a, b in self.upper:
            terms = [f"H{a}{b}", *(f"t{c - b} * H{a}{c}" for c in range(b + 1, q))]
            lines.append(f"E{a}{b} = dd * ({' + '.join(terms)})")
        lines += [f"B{a}{b} = E{a}{b} + variance * {self.prior[a, b]!r}" for a, b in self.upper]
        return lines + (self.predict_mean() if mean else [])

    def predict_mean(self):
        """``m <- A m``."""
        lines = []
        for a in self.places:
            terms = [f"m{a}", *(f"t{c - a} * m{c}" for c in range(a + 1, self.q))]
            lines.append(f"m{a} = d * ({' + '.join(terms)})")
        return lines

    def back_mean(self):
        """``M <- A' M``."""
        lines = []
        for b in reversed(self.places):
            terms = [f"M{b}", *(f"t{b - a} * M{a}" for a in range(b))]
            lines.append(f"M{b} = d * ({' + '.join(terms)})")
        return lines

    def back_covariance(self):
        """``K <- A' K A``."""
        lines = []
        for a in self.places:
            for b in self.places:
                terms = [f"t{b - c} * {self.at('K', a, c)}" for c in range(b)]
                lines.append(f"R{a}{b} = " + " + ".join([self.at("K", a, b), *terms]))
        for a, b in self.upper:
            terms = [f"R{a}{b}", *(f"t{a - c} * R{c}{b}" for c in range(a))]
            lines.append(f"K{a}{b} = dd * ({' + '.join(terms)})")
        return lines

    def products(self, out, matrix, vector):
        """``out = matrix vector``."""
        return [
            f"{out}{a} = " + " + ".join(f"{self.at(matrix, a, b)} * {vector}{b}" for b in self.places)
            for a in self.places
        ]

    def begin(self):
        """The state before the first row."""
        return [f"m{a} = 0.0" for a in self.places] + [
            f"B{a}{b} = variance * {self.prior[a, b]!r}" for a, b in self.upper
        ]

    def gains(self):
        """Gains, variance and residual."""
        lines = ["g = G[i, 0]"] + [f"v{a} = g * B0{a}" for a in self.places]
        return [*lines, "S = g * v0 + noise[i]", "z = e[i] - g * m0", "r = 1.0 / S", "k = z * r"]

    def update(self):
        """The state after the row."""
        lines = [f"m{a} += v{a} * k" for a in self.places]
        return lines + [f"C{a}{b} = B{a}{b} - v{a} * v{b} * r" for a, b in self.upper]

    def back(self):
        """Through the update: `M` and `K` (upper triangle) are the adjoints of mean and covariance."""
        lines = [f"moved = {self.dot('v', 'M')}"]
        lines += [
            *self.products("w", "K", "v"),
            f"Sb = 0.5 * (k * k - r) + ({self.dot('v', 'w')} * r - k * moved) * r",
            "zb = (moved - z) * r",
            "noise_bar[i] = Sb",
            "e_bar[i] = zb",
            *(f"y{a} = (M{a} * z - 2.0 * w{a}) * r" for a in self.places),
            "y0 += Sb * g",
        ]
        terms = " + ".join(f"B0{b} * y{b}" for b in self.places)
        lines += [f"G_bar[i, 0] = Sb * v0 - zb * m0 + {terms}", "M0 -= zb * g", "K00 += y0 * g"]
        lines += [f"K0{b} += 0.5 * g * y{b}" for b in self.places[1:]]
        return [*lines, f"variance_bar += {self._trace()}"]

    def back_step(self):
        """Through the transition."""
        terms, lines = [], []
        for a in self.places:
            own = f"M{a} * m{a} + 2.0 * ({self._row('K', a, a)})"
            terms.append(f"-({own})")
            if a + 1 < self.q:
                terms.append(f"M{a} * m{a + 1} + 2.0 * ({self._row('K', a, a + 1)})")
        lines.append(f"slope = {' + '.join(terms)}")
        lines += ["rate_bar += slope * dt[i]", "dt_bar[i] = slope * rate"]
        lines += [*self.back_mean(), *self.back_covariance()]
        return [*lines, f"variance_bar -= {self._trace()}"]

    def dot(self, left, right):
        """Sum of products."""
        return "(" + " + ".join(f"{left}{a} * {right}{a}" for a in self.places) + ")"

    def _row(self, name, a, b):
        """``sum_c name_ac E_bc``."""
        return " + ".join(f"{self.at(name, a, c)} * {self.at('E', b, c)}" for c in self.places)

    def _trace(self):
        """``tr(P K)``."""
        return " + ".join(
            f"{self.prior[a, b] * (1.0 if a == b else 2.0)!r} * K{a}{b}" for a, b in self.upper
        )


def _indented(lines, depth):
    return [" " * 4 * depth + line for line in lines]


def single_logp(q: int):
    """Numba function of the inputs of `MarkovLogp`, for a process of q states and one feature."""
    return _written("single_logp", q, [], [], [], ["return np.asarray(np.nan)"], "np.asarray(logp)")


def single_slopes(q: int):
    """As `single_logp`, of `MarkovSlopes`."""
    names = _Names(q)
    state = list(enumerate(names.state()))
    made = {"dt_bar": "n", "G_bar": "(n, 1)", "noise_bar": "n", "e_bar": "n"}
    found = "dt_bar, rates_bar, V_bar, G_bar, noise_bar, e_bar"
    before = [f"kept = np.empty((n, {len(state)}))", "rates_bar, V_bar = np.zeros(1), np.zeros(1)"]
    before += [f"{name} = np.zeros({shape})" for name, shape in made.items()]
    failed = [f"{name}[:] = np.nan" for name in found.split(", ")]
    zero = [f"M{a} = 0.0" for a in names.places] + [f"K{a}{b} = 0.0" for a, b in names.upper]
    back = [
        *_indented(["rate_bar, variance_bar, last = 0.0, 0.0, -1.0", *zero], 1),
        "    for i in range(n - 1, -1, -1):",
        "        if i:",
        *_indented([f"{name} = kept[i - 1, {place}]" for place, name in state], 3),
        *_indented([*names.step(), *names.predict()], 3),
        "        else:",
        *_indented(names.begin(), 3),
        *_indented([*names.gains(), *names.back()], 2),
        "        if i:",
        *_indented(names.back_step(), 3),
        "    rates_bar[0], V_bar[0] = rate_bar, variance_bar",
    ]
    return _written(
        "single_slopes", q, before, [f"kept[i, {place}] = {name}" for place, name in state], back,
        [*failed, f"return np.asarray(np.nan), {found}"], f"np.asarray(logp), {found}",
    )  # fmt: skip


def single_columns(q: int, smooth: bool):
    """As `single_logp`, of `MarkovSolve` or, if `smooth`, of `MarkovSmooth`.

    Gains, variances and transitions of all rows come first; then each column goes forth and back.
    """
    names = _Names(q)
    state = [name for name in names.state() if name[0] == "C"]
    gained = [f"v{a} = kept[i, {a}]" for a in names.places]
    moved = [f"d = kept[i, {q + 1}]", "u = rate * dt[i]", "t1 = u"]
    moved += [f"t{k} = t{k - 1} * u / {k}.0" for k in range(2, q)]
    lines = [
        "def single_columns(dt, rates, variances, G, noise, columns):",
        "    n, rate, variance = len(dt), rates[0], variances[0]",
        f"    kept, out = np.empty((n, {q + 2})), np.empty(columns.shape)",
        "    left, last = np.empty(n), -1.0",
        "    u = d = dd = " + " = ".join(f"t{k}" for k in range(1, q + 1)) + " = 0.0",
        *_indented([f"{each} = 0.0" for each in state], 1),
        "    for i in range(n):",
        "        if i:",
        *_indented([*names.step(), *names.predict(mean=False)], 3),
        "        else:",
        *_indented([line for line in names.begin() if line[0] == "B"], 3),
        "        g = G[i, 0]",
        *_indented([f"v{a} = g * B0{a}" for a in names.places], 2),
        "        left[i] = g * v0",
        "        S = left[i] + noise[i]",
        "        if not S > 0.0:",
        "            out[:], left[:] = np.nan, np.nan",
        "            return out" + (", left" if smooth else ""),
        "        r = 1.0 / S if noise[i] < np.inf else 0.0",
        *_indented([f"C{a}{b} = B{a}{b} - v{a} * v{b} * r" for a, b in names.upper], 2),
        *_indented([f"kept[i, {a}] = v{a}" for a in names.places], 2),
        f"        kept[i, {q}], kept[i, {q + 1}] = r, d",
        "    Z = np.empty(n)",
        "    for c in range(columns.shape[1]):",
        *_indented([f"m{a} = 0.0" for a in names.places], 2),
        "        for i in range(n):",
        "            if i:",
        *_indented([*moved, *names.predict_mean()], 4),
        *_indented(gained, 3),
        f"            r, out[i, c] = kept[i, {q}], G[i, 0] * m0",
        "            Z[i] = (columns[i, c] - out[i, c]) * r if r != 0.0 else 0.0",
        *_indented([f"m{a} += v{a} * Z[i]" for a in names.places], 3),
        *_indented([f"M{a} = 0.0" for a in names.places], 2),
        "        for i in range(n - 1, -1, -1):",
        *_indented(gained, 3),
        f"            k = Z[i] - {names.dot('v', 'M')} * kept[i, {q}]",
        "            M0 += G[i, 0] * k",
        "            out[i, c] += " + names.dot("v", "M") if smooth else "            out[i, c] = k",
        "            if i:",
        *_indented([*moved, *names.back_mean()], 4),
    ]
    if smooth:
        lines += [
            *_indented([f"K{a}{b} = 0.0" for a, b in names.upper], 1),
            "    for i in range(n - 1, -1, -1):",
            *_indented([*gained, *names.products("w", "K", "v")], 2),
            f"        g, r, d = G[i, 0], kept[i, {q}], kept[i, {q + 1}]",
            f"        K00 += g * (g * (1.0 + {names.dot('v', 'w')} * r) * r - 2.0 * w0 * r)",
            *_indented([f"K0{b} -= g * w{b} * r" for b in names.places[1:]], 2),
            *_indented(names.products("w", "K", "v"), 2),
            f"        left[i] = max(left[i] - {names.dot('v', 'w')}, 0.0)",
            "        if i:",
            *_indented([*moved, "dd = d * d", *names.back_covariance()], 3),
        ]
    lines.append("    return out" + (", left" if smooth else ""))
    return from_source("\n".join(lines), "single_columns", {"np": np, "__name__": __name__})


def _written(name, q, before, keep, after, failed, returned):
    """The filter, what is kept of each row, and what comes after."""
    names = _Names(q)
    lines = [
        f"def {name}(dt, rates, variances, G, noise, e):",
        "    n, rate, variance = len(dt), rates[0], variances[0]",
        *_indented(before, 1),
        "    logp, last = -0.5 * n * LOG_2PI, -1.0",
        "    u = d = dd = " + " = ".join(f"t{k}" for k in range(1, q + 1)) + " = 0.0",
        *_indented([f"{each} = 0.0" for each in names.state()], 1),
        "    for i in range(n):",
        "        if i:",
        *_indented([*names.step(), *names.predict()], 3),
        "        else:",
        *_indented(names.begin(), 3),
        *_indented(names.gains(), 2),
        "        if not S > 0.0:",
        *_indented(failed, 3),
        "        logp -= 0.5 * (np.log(S) + z * k)",
        *_indented([*names.update(), *keep], 2),
        "    if not np.isfinite(logp):",
        *_indented(failed, 2),
        *after,
        f"    return {returned}",
    ]
    scope = {"LOG_2PI": LOG_2PI, "np": np, "__name__": __name__}
    return from_source("\n".join(lines), name, scope)
