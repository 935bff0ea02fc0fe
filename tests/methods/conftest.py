"""What tests of several methods share."""

import pytest


class Bar:
    """A progress bar that notes what it shows."""

    def __init__(self):
        self.description, self.completed, self.total, self.steps = "", 0, 0, 0

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return False

    def add_task(self, description, completed, total):
        self.description, self.completed, self.total = description, completed, total

    def update(self, task, advance=0, completed=None, description=None):
        self.steps += advance
        self.completed = self.completed + advance if completed is None else completed
        self.description = description or self.description


@pytest.fixture
def bar_of(monkeypatch):
    """The bar that a module's progress goes to."""

    def bar_of(module):
        bar = Bar()
        monkeypatch.setattr(module, "create_simple_progress", lambda progressbar: bar)
        return bar

    return bar_of
