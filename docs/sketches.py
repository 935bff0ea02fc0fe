"""Draws a sketch for each method, docs/_static/sketches/NAME.svg: what it keeps of data or kernel."""

from pathlib import Path

import numpy as np

WIDTH, HEIGHT = 160, 90
PALE, LINE, DOT, GREY = "#8ecae6", "#126782", "#fb8500", "#b8c4cc"


def dots(points, radius, colour):
    """Circles at points (n, 2)."""
    return "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{colour}"/>' for x, y in points
    )


def square(x, y, size, colour, opacity=1.0):
    """A filled square."""
    shade = "" if opacity == 1.0 else f' fill-opacity="{opacity:.2f}"'
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{size:g}" height="{size:g}" fill="{colour}"{shade}/>'
    )


def curve(x, y, colour, width=2.0):
    """A line through points."""
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width:g}"/>'


def matrix(values, left, top, cell):
    """Entries as squares of more or less colour."""
    return "".join(
        square(left + cell * j, top + cell * i, cell - 0.6, LINE, value)
        for (i, j), value in np.ndenumerate(values)
        if value > 0.02
    )


def scattered(count):
    """Points in the frame that keep apart: each the farthest of forty random ones."""
    rng = np.random.default_rng(3)
    found = [np.array([WIDTH / 2.0, HEIGHT / 2.0])]
    for _ in range(count - 1):
        tried = rng.uniform([8.0, 8.0], [WIDTH - 8.0, HEIGHT - 8.0], (40, 2))
        apart = np.linalg.norm(tried[:, None] - np.array(found), axis=-1).min(axis=1)
        found.append(tried[np.argmax(apart)])
    return np.array(found)


def smooth(x, lengthscale):
    """Squared-exponential covariance of positions."""
    return np.exp(-0.5 * ((x[:, None] - x) / lengthscale) ** 2)


def exact():
    """The whole covariance matrix."""
    return matrix(smooth(np.arange(14.0), 2.5), 39.0, 4.0, 5.9)


def vecchia():
    """A block of rows, its neighbours among the rows, and inducing points for what is far."""
    points = scattered(70)
    away = np.linalg.norm(points - [100.0, 42.0], axis=1).argsort()
    lines = "".join(
        f'<path d="M{a[0]:.1f} {a[1]:.1f}L{b[0]:.1f} {b[1]:.1f}" stroke="{PALE}" stroke-width="1"/>'
        for a in points[away[:3]]
        for b in points[away[3:12]]
    )
    chosen = points[1:9]  # the first are the most evenly spread
    rings = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="none" stroke="{DOT}" stroke-width="2"/>'
        for x, y in chosen
    )
    return (
        lines + dots(points[away[12:]], 2.2, GREY) + dots(points[away[3:12]], 2.6, LINE)
        + dots(points[away[:3]], 3.2, DOT) + rings
    )  # fmt: skip


def statespace():
    """A function whose band narrows at each target, from left to right."""
    x = np.linspace(10.0, 150.0, 141)
    targets = np.array([22.0, 38.0, 71.0, 80.0, 118.0, 133.0])
    middle = 45.0 + 20.0 * np.sin(x / 17.0)
    since = np.min(np.where(x[:, None] >= targets, x[:, None] - targets, np.inf), axis=1)
    band = 18.0 * np.sqrt(-np.expm1(-np.minimum(since, 1e3) / 14.0)) + 2.0
    shape = " ".join(
        f"{a:.1f},{b:.1f}"
        for a, b in [
            *zip(x, middle - band, strict=True),
            *zip(x[::-1], (middle + band)[::-1], strict=True),
        ]
    )
    at = np.column_stack([targets, 45.0 + 20.0 * np.sin(targets / 17.0)])
    return (
        f'<polygon points="{shape}" fill="{PALE}"/>' + curve(x, middle, LINE) + dots(at, 3.2, DOT)
    )


def grief():
    """Eigenfunctions over the nodes of a grid."""
    nodes = np.linspace(0.0, 1.0, 60)
    order = np.linalg.eigh(smooth(nodes, 0.25))[1][:, ::-1]
    x = 10.0 + 140.0 * nodes
    waves = "".join(
        curve(x, 39.0 + sign * 120.0 * order[:, j], colour)
        for j, colour, sign in ((2, PALE, 1.0), (1, LINE, 1.0), (0, DOT, -1.0))
    )
    return waves + dots([(a, 84.0) for a in np.linspace(10.0, 150.0, 11)], 2.2, GREY)


def skip():
    """The elementwise product of one covariance matrix per input."""
    places = np.random.default_rng(0).permutation(7).astype(float)
    first, second = smooth(np.arange(7.0), 1.6), smooth(places, 1.6)
    signs = "".join(
        f'<text x="{x}" y="51" font-size="17" font-family="sans-serif" fill="{LINE}" '
        f'text-anchor="middle">{text}</text>'
        for x, text in ((53, "\u2299"), (108, "="))
    )
    return (
        matrix(first, 6.0, 25.0, 5.6) + matrix(second, 61.0, 25.0, 5.6)
        + matrix(first * second, 116.0, 25.0, 5.6) + signs
    )  # fmt: skip


def softki():
    """Each place mixes the points next to it, softly."""
    centres = scattered(7)
    step = 8.0
    x, y = np.meshgrid(np.arange(0.0, WIDTH, step), np.arange(0.0, HEIGHT, step))
    cells = np.stack([x.ravel(), y.ravel()], axis=1)
    away = np.linalg.norm(cells[:, None] + step / 2.0 - centres, axis=-1)
    weights = np.exp(-away / 5.0)
    largest = (weights / weights.sum(axis=1, keepdims=True)).max(axis=1)
    shades = "".join(
        square(a, b, step, PALE, 0.9 * (w - 1.0 / len(centres)) / (1.0 - 1.0 / len(centres)))
        for (a, b), w in zip(cells, largest, strict=True)
    )
    return shades + dots(centres, 4.5, DOT)


def kmcg():
    """A regular series with a gap."""
    x = np.linspace(6.0, 154.0, 38)
    y = 45.0 + 18.0 * np.sin(x / 15.0) + 9.0 * np.sin(x / 4.1)
    seen = (x < 84.0) | (x > 112.0)
    fine = np.linspace(6.0, 154.0, 200)
    middle = 45.0 + 18.0 * np.sin(fine / 15.0) + 9.0 * np.sin(fine / 4.1)
    ticks = "".join(f'<path d="M{a:.1f} 84V88" stroke="{GREY}" stroke-width="1.5"/>' for a in x)
    return (
        curve(fine, middle, PALE, 3.0)
        + dots(np.stack([x[seen], y[seen]], axis=1), 2.4, LINE)
        + ticks
    )


def cholqr():
    """Strings, of which some are inducing points."""
    words = ("ACGTAC", "GATTAC", "CCGTAA", "TTAGGC", "ACGATC", "GGATCC", "TACGTA", "CATGCA")
    parts = []
    for place, word in enumerate(words):
        x, y = 8 + 76 * (place % 2), 20 + 20 * (place // 2)
        chosen = place in (1, 4, 6)
        if chosen:
            parts.append(
                f'<rect x="{x - 4}" y="{y - 13}" width="72" height="17" rx="5" fill="{DOT}"/>'
            )
        parts.append(
            f'<text x="{x + 32}" y="{y}" font-size="12.5" font-family="monospace" text-anchor="middle" '
            f'fill="{"white" if chosen else LINE}">{word}</text>'
        )
    return "".join(parts)


SKETCHES = {
    "exact": exact, "vecchia": vecchia, "grief": grief, "skip": skip, "softki": softki,
    "kmcg": kmcg, "cholqr": cholqr, "statespace": statespace,
}  # fmt: skip


def main():
    folder = Path(__file__).parent / "_static" / "sketches"
    folder.mkdir(exist_ok=True)
    for name, draw in SKETCHES.items():
        text = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">{draw()}</svg>\n'
        (folder / f"{name}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
