"""The library that every paper uses: pictures, models, features, ridge, records, verdicts. It knows no paper."""
