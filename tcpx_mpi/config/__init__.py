"""Every option, declared once; the settings with their sources; the TOML file of settings."""
