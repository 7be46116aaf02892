"""`gantry cert`: a certificate authority for development, and certificates that it issues."""
