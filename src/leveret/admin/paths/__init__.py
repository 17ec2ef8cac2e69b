"""The paths of the HTTP API and the commands behind them."""
