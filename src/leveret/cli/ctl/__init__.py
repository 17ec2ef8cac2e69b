"""leveret ctl: the operator's command line, with rabbitmqctl's names, arguments, output and exit codes.

spec.py says what a command is, tables/ has them all; parsing, calling and printing know none of them by name.
"""
