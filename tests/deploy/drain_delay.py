"""The delay between the failing readiness and the drain, for tests that end it themselves."""

# Seconds; longer than any test.
DELAY = 3600.0
