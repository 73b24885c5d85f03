"""Where resources come from: files, and programs that fill a `Store`. The server can't tell sources apart."""
