"""What users bring: image folders, tables, Hugging Face datasets, arrays in files and in memory; each source one file.

A source lists its rows (`rows.Rows`) and what they hold (`content.Content`: images, features, vectors, pixels);
`assemble` checks them, all at once, and makes a `Dataset` of them. `new_data` reads more of the same for a model.
"""
