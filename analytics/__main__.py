"""Entry point of `python -m analytics` and of spark-submit."""

import sys

from analytics.command import main

if __name__ == "__main__":
    sys.exit(main())
