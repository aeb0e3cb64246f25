"""starting_models"""
