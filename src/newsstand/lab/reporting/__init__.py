"""Claims, statistics, figures, reports and cached runs."""
