"""The admin port: JSON about what is served and to whom."""
