"""The admin port: shows as JSON which resources are served, and to which clients."""
