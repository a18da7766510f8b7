"""One user verb a module: takes a store and options, returns facts. Nothing here prints."""
