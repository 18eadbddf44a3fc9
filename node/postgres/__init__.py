"""Finding a Postgres, or making a private one out of the binaries that are there.

:mod:`.binaries` finds, :mod:`.cluster` makes, :mod:`.account` says as whom. Nothing here speaks
SQL: what is in the databases belongs to the stores.
"""

from node.postgres.binaries import ExternalServer, ServerBinaries, locate
from node.postgres.cluster import PrivateCluster, existing_major

__all__ = ["ExternalServer", "PrivateCluster", "ServerBinaries", "existing_major", "locate"]
