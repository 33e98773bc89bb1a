"""The theorems of Section 5, zhang2022, with both sides computed."""
