"""The tests. They import each other relatively, from here on."""
