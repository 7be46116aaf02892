"""The documentation: Markdown pages for mkdocs, and the code that generates, builds and checks them."""
