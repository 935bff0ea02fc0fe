"""Draws the logo and the chart of classes, docs/_static/logo.svg and classes.svg."""

from html import escape
from pathlib import Path

import numpy as np

SIZE = 64
POINTS = np.array([[8.0, 40.0], [22.0, 20.0], [38.0, 38.0], [56.0, 24.0]])
BAND, LINE, DOT = "#8ecae6", "#126782", "#fb8500"

# Asked from the top; the first yes decides.
QUESTIONS = [
    ("Strings, sets, graphs, categories?", "CholQRMarginal"),
    ("A regular grid or series, gaps or not?", "KMCGMarginal"),
    ("Hundreds of tasks or short series?", "SKIPMarginal"),
    ("Counts, classes, any other likelihood?", "VecchiaLatent, SKIPLatent, GriefGP"),
    ("Gaussian noise, up to 3000 rows?", "ExactMarginal"),
    ("Up to some 10\u2074 rows?", "VecchiaMarginal"),
    ("More, five inputs or more?", "SoftKIMarginal"),
    ("More, few inputs, a product kernel?", "GriefGP, frozen basis or free weights"),
]
WIDTH, STEP, BOX, ANSWER = 760, 62, 340, 340


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


def box(x, y, width, text, fill, colour):
    """A rounded box with a line of text."""
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="38" rx="8" fill="{fill}"/>'
        f'<text x="{x + width / 2}" y="{y + 25}" fill="{colour}" text-anchor="middle">{escape(text)}</text>'
    )


def chart():
    """Questions on the left, classes on the right."""
    parts, right = [], WIDTH - ANSWER
    for row, (question, answer) in enumerate(QUESTIONS):
        y = 4 + row * STEP
        parts += [
            box(0, y, BOX, question, BAND, "#023047"),
            box(right, y, ANSWER, answer, LINE, "white"),
        ]
        parts.append(f'<path d="M{BOX} {y + 19}H{right - 8}" marker-end="url(#a)"/>')
        parts.append(f'<text x="{BOX + 12}" y="{y + 14}" fill="#777" font-size="13">yes</text>')
        if row < len(QUESTIONS) - 1:
            parts.append(f'<path d="M{BOX / 2} {y + 38}V{y + STEP - 8}" marker-end="url(#a)"/>')
            parts.append(
                f'<text x="{BOX / 2 + 8}" y="{y + 54}" fill="#777" font-size="13">no</text>'
            )
    head = (
        '<defs><marker id="a" viewBox="0 0 8 8" refX="1" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0L8 4L0 8z" fill="#777" stroke="none"/></marker></defs>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {len(QUESTIONS) * STEP}" '
        'font-family="sans-serif" font-size="17" stroke-width="1.5">'
        f'{head}<g stroke="none">{"".join(p for p in parts if not p.startswith("<path"))}</g>'
        f'<g stroke="#777" fill="none">{"".join(p for p in parts if p.startswith("<path"))}</g></svg>\n'
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
    (folder / "classes.svg").write_text(chart(), encoding="utf-8")


if __name__ == "__main__":
    main()
