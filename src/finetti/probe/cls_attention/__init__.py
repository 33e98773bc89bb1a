"""Attention of [CLS] over binary tokens without its (m, H, T, T) arrays: tables, or blocks."""
