"""The tests. They import each other by relative imports that start at this package."""
