"""What users bring: image folders, tables, Hugging Face datasets, arrays; each source one file.

A source lists its rows (`rows.Rows`); `assemble` checks them, all at once, and makes a `Dataset` of them. `new_data`
reads more of the same kind for a trained model, `memory` takes what is in memory already.
"""
