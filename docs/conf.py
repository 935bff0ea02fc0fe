"""Sphinx configuration."""

import shutil
import socket
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # of recorded.py

project = "pymc_scalable_gp"
author = "pymc_scalable_gp developers"
copyright = "pymc_scalable_gp developers"
release = installed_version("pymc_scalable_gp")
version = ".".join(release.split(".")[:2])

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",
    "numpydoc",
    "myst_nb",
    "sphinx_design",
    "sphinx_copybutton",
    "recorded",
]
exclude_patterns = ["_build", "_outputs", "_templates", "jupyter_execute"]
templates_path = ["_templates"]

html_theme = "pydata_sphinx_theme"
html_title = "pymc_scalable_gp"
html_logo = html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "logo": {"text": "pymc_scalable_gp", "alt_text": "pymc_scalable_gp, to the first page"},
}
# A single page has no tree beside it.
html_sidebars = {page: [] for page in ("index", "install", "quickstart")}

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
# A tutorial that did not change since its outputs were kept (keep_outputs.py) is not run again.
outputs = Path(__file__).parent / "_build" / "outputs"
if not outputs.exists():
    shutil.copytree(outputs.parents[1] / "_outputs", outputs)
nb_execution_cache_path = str(outputs)
nb_execution_raise_on_error = True
nb_execution_timeout = 600

OTHERS = {
    "python": "https://docs.python.org/3",
    "numpy": "https://numpy.org/doc/stable",
    "xarray": "https://docs.xarray.dev/en/stable",
    "pytensor": "https://pytensor.readthedocs.io/en/latest",
    "pymc": "https://www.pymc.io/projects/docs/en/stable",
    "arviz": "https://python.arviz.org/en/stable",
}


def reachable(host: str) -> bool:
    """Whether there is a network: without one, names of other projects are plain text."""
    try:
        socket.create_connection((host, 443), timeout=3).close()
    except OSError:
        return False
    return True


intersphinx_mapping = {
    name: (address, None) for name, address in OTHERS.items() if reachable(address.split("/")[2])
}

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"
numpydoc_show_class_members = False

copybutton_exclude = ".linenos, .gp"
