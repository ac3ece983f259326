"""The small library every paper uses: pictures, models, features, ridge, records and verdicts. Nothing in it knows a paper."""
