"""Small helpers: graphs, points of a model, row blocks, checks of options."""
