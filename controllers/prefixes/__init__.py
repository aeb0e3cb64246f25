"""prefixes"""
