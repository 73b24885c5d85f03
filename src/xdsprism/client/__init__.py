"""The xDS client: subscribes to the resources of xDS servers. The relay uses it for its upstream side."""
