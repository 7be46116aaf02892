"""The HTTP API's routes, one file per subject; what they answer is made in the modules above."""
