"""The longer commands of the command line. ``app.cli`` has their options."""
