"""The sources of resources: files on disk, and the store that programs fill. The server treats all sources alike."""
