"""The library that every paper uses: images, models, features, ridge, records, verdicts. It knows no paper."""
