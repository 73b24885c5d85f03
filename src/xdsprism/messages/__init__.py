"""The installed message types: found by name, made of documents, checked against the rules written into them."""
