"""Draws the logo and the chart of classes, docs/_static/logo.svg and classes.svg.

    python docs/drawings.py

The chart has what `sgp.suggest` puts first, for simulated inputs of several numbers of rows and columns.
"""

from html import escape
from pathlib import Path

import numpy as np
import pymc as pm
import pymc_scalable_gp as sgp

SIZE = 64
POINTS = np.array([[8.0, 40.0], [22.0, 20.0], [38.0, 38.0], [56.0, 24.0]])
BAND, LINE, DOT = "#8ecae6", "#126782", "#fb8500"

# Rows and columns of each panel of the chart: uniform inputs of unit variance, under a kernel with free
# lengthscales near the root of the number of inputs. Minutes and GiB are those that `suggest` may use.
ROWS, INPUTS, BUDGET = (500, 3000, 10_000, 100_000, 1_000_000), (1, 2, 4, 8), (60.0, 16.0)
PANELS = {
    "Gaussian noise, Matern52": (pm.gp.cov.Matern52, "normal"),
    "Gaussian noise, ExpQuad": (pm.gp.cov.ExpQuad, "normal"),
    "Counts, Matern52": (pm.gp.cov.Matern52, "poisson"),
}
FILLS = {
    "Exact": "#023047", "StateSpace": "#126782", "Vecchia": "#1b7f99", "GriefGP": "#b35c00",
    "SKIP": "#7b2cbf", "SoftKI": "#9d0208",
}  # fmt: skip
CELL, HEIGHT, LEFT = 116, 34, 96


def posterior(x, lengthscale=9.0, scale=13.0):
    """Mean and sd, in pixels, of a squared-exponential kernel."""
    known, heights = POINTS.T

    def kernel(a, b):
        return scale**2 * np.exp(-0.5 * (a[:, None] - b) ** 2 / lengthscale**2)

    gain = np.linalg.solve(kernel(known, known) + 1e-6 * np.eye(len(known)), kernel(known, x)).T
    level = heights.mean()
    var = scale**2 - np.einsum("ij,ji->i", gain, kernel(known, x))
    return level + gain @ (heights - level), np.sqrt(np.maximum(var, 0.0))


def path(x, y):
    """Points of an SVG path."""
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))


def answer(rows, inputs, kernel, likelihood):
    """Class that `suggest` puts first, and whether it meets the budget."""
    X = np.random.default_rng(0).uniform(-(3.0**0.5), 3.0**0.5, (rows, inputs))
    with pm.Model():
        ell = pm.LogNormal("ell", 0.5 * np.log(inputs), 0.5, shape=inputs)
        minutes, memory = BUDGET
        found = sgp.suggest(
            X,
            cov_func=kernel(inputs, ls=ell),
            likelihood=likelihood,
            minutes=minutes,
            memory=memory,
        )
    return str(found.class_name.values[0]), bool(found.fits.values[0])


def text(x, y, words, fill="#777", anchor="middle", size=15):
    """A line of text."""
    return (
        f'<text x="{x:g}" y="{y:g}" fill="{fill}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(words)}</text>"
    )


def chart(answers):
    """One panel for each kernel and likelihood; `answers` by panel, inputs and rows."""
    parts, top = [], 24
    for panel in PANELS:
        parts.append(text(0, top - 6, panel, anchor="start", size=17))
        for i, rows in enumerate(ROWS):
            parts.append(text(LEFT + (i + 0.5) * CELL, top + 16, f"{rows:,} rows", size=13))
        for j, inputs in enumerate(INPUTS):
            y = top + 24 + j * HEIGHT
            words = f"{inputs} input{'s' * (inputs > 1)}"
            parts.append(text(LEFT - 10, y + 22, words, anchor="end", size=13))
            for i, rows in enumerate(ROWS):
                name, fits = answers[panel, inputs, rows]
                short = name.removesuffix("Marginal").removesuffix("Latent")
                x, words = LEFT + i * CELL, name.removesuffix("Marginal") + " *" * (not fits)
                parts.append(
                    f'<rect x="{x + 2}" y="{y + 2}" width="{CELL - 4}" height="{HEIGHT - 4}" rx="6" '
                    f'fill="{FILLS[short]}"><title>{panel}, {inputs}, {rows}: {name}</title></rect>'
                )
                parts.append(text(x + CELL / 2, y + 22, words, "white"))
        top += 24 + len(INPUTS) * HEIGHT + 34
    parts.append(text(0, top - 18, "* takes more than an hour", anchor="start", size=13))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + len(ROWS) * CELL} {top - 8}" '
        f'font-family="sans-serif">{"".join(parts)}</svg>\n'
    )


def logo():
    """The posterior of a Gaussian process given four points."""
    x = np.linspace(1.0, SIZE - 1.0, 125)
    mean, sd = posterior(x)
    band = path(np.append(x, x[::-1]), np.append(mean - 1.645 * sd, (mean + 1.645 * sd)[::-1]))
    dots = "".join(f'<circle cx="{a:g}" cy="{b:g}" r="4" fill="{DOT}"/>' for a, b in POINTS)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE}">'
        f'<polygon points="{band}" fill="{BAND}"/>'
        f'<polyline points="{path(x, mean)}" fill="none" stroke="{LINE}" stroke-width="3"/>'
        f"{dots}</svg>\n"
    )


def main():
    folder = Path(__file__).parent / "_static"
    (folder / "logo.svg").write_text(logo(), encoding="utf-8")
    answers = {
        (panel, inputs, rows): answer(rows, inputs, *kind)
        for panel, kind in PANELS.items()
        for inputs in INPUTS
        for rows in ROWS
    }
    (folder / "classes.svg").write_text(chart(answers), encoding="utf-8")


if __name__ == "__main__":
    main()
