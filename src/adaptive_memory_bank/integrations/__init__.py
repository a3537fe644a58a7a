"""Drop-ins for other libraries: one file each, imported by name, so that none is needed by the others."""
