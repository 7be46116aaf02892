"""Notebooks, each as a program and as an .ipynb made of it; they ask transforms and draw, and define nothing."""
