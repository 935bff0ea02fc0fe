"""Sphinx configuration."""

from importlib.metadata import version as installed_version

project = "pymc_scalable_gp"
author = "pymc_scalable_gp developers"
copyright = "pymc_scalable_gp developers"
release = installed_version("pymc_scalable_gp")
version = ".".join(release.split(".")[:2])

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_nb",
    "sphinx_design",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "jupyter_execute"]

html_theme = "pydata_sphinx_theme"
html_title = "pymc_scalable_gp"
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": False, "show_toc_level": 2}

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 600

autodoc_member_order = "bysource"
autodoc_typehints = "none"
numpydoc_show_class_members = False

copybutton_exclude = ".linenos, .gp"
