"""Settings that hold for every test. Fixtures live in the folder that needs them."""

from __future__ import annotations

from hypothesis import settings

# A deadline per example measures the machine, not the code: two cores are shared with real
# Postgres servers and real nodes. A test that hangs is ended by pytest-timeout.
settings.register_profile("parley", deadline=None, print_blob=True)
settings.load_profile("parley")
