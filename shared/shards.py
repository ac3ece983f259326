"""Moved to `shared.features`; kept until its last importer has moved too."""

from shared.features import SHARD

__all__ = ["SHARD"]
