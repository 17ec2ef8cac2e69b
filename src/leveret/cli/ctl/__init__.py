"""leveret ctl: the operator's command line, with rabbitmqctl's names, arguments, output and exit codes.

spec.py defines what a command is, tables/ contains all commands; the other modules parse, call and print any of them.
"""
