"""What tests of programs built on xdsprism may import; production code never does."""
