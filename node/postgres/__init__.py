"""Find a Postgres, or create a private one from installed binaries.

:mod:`.binaries` finds the server, :mod:`.cluster` creates and runs a private one, :mod:`.account`
chooses its account. This package uses no SQL: the content of databases belongs to the stores.
"""

from node.postgres.binaries import ExternalServer, ServerBinaries, locate
from node.postgres.cluster import PrivateCluster, existing_major

__all__ = ["ExternalServer", "PrivateCluster", "ServerBinaries", "existing_major", "locate"]
