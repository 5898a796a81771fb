"""The subcommands of `voxgate`, one module each."""
