"""Between many clients and few servers: a cache that proves what it may share."""
