"""What every layer may use: errors, files, settings, processes, devices. Nothing here knows what a descriptor is."""
