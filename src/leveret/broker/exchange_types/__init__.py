"""The exchange types, a matcher each; `table` names them all."""
