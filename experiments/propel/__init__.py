"""PROPEL from a YAML file: configuration, stages, tables and figures."""
