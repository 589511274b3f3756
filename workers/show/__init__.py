"""What people see: values in, lines out. Nothing here reads a store, a clock or a setting."""
