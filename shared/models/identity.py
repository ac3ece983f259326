"""Moved to `shared.models`; kept until its last importer has moved too."""

from shared.models import Identity, computed_in

__all__ = ["Identity", "computed_in"]
