"""Where resources come from: files now; the server can't tell sources apart (STYLE, habit 10)."""
