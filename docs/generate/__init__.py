"""Reference pages that are generated from the code; `python -m docs.generate` writes them."""
