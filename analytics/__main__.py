"""`python -m analytics`, and what spark-submit is given."""

import sys

from analytics.command import main

if __name__ == "__main__":
    sys.exit(main())
