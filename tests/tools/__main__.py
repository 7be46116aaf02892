"""`python -m tests.tools` builds the programs."""

from tests import tools

tools.install()
