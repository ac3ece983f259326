"""The one exception a user may cause."""

from __future__ import annotations


class UserError(Exception):
    """Bad input or set-up. The message is one line: the file or value, what was expected, and the way out.

    `shared.cli.run` prints it without a traceback and exits with code 2.
    """
