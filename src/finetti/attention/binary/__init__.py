"""[CLS] attention over binary tokens: tables instead of tokens, exact at any length."""
