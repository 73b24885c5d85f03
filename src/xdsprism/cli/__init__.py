"""The `xdsprism` command, one file per verb."""
