"""Every table of text is read by one reader: separators, byte-order marks, quotes, gzip, and cells as they are."""

import gzip

import pytest

from karat.errors import UserError
from karat.files.text_tables import read_text_table


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", 'code,note\n007,"a,b"\nNA,\n'),
        ("t.csv", '\ufeffcode;note\r\n007;"a,b"\r\nNA\r\n'),
        ("t.csv", "code\tnote\n007\ta,b\n\nNA\t\n"),
        ("t.tsv", "code\tnote\n007\ta,b\nNA\t\n"),
        ("t.csv.gz", 'code,note\n007,"a,b"\nNA\n'),
    ],
)
def test_all_forms_of_a_table_give_the_same_cells(tmp_path, name, text):
    content = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert read_text_table(tmp_path / name).to_dict("list") == {"code": ["007", "NA"], "note": ["a,b", ""]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty: write a line with the names"),
        (b" , \n1,2\n", "is empty"),
        (b"a,a\n1,2\n", "has more than one column 'a'"),
        (b"a,b\n1,2,3\n", r"has rows that do not fit its first line \(.*\): give each row one cell for each column"),
        (b'a,b\n"1,2\n', r"has rows that do not fit its first line \(.*EOF inside string"),
        (b"a,b\n1,\xff\n", r"is not text in UTF-8 \(invalid start byte\): save it as UTF-8"),
    ],
)
def test_what_is_no_table_is_one_sentence_with_a_remedy(tmp_path, content, message):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_text_table(tmp_path / "t.csv")
    if b"a,a" not in content:
        with pytest.raises(UserError, match=r": ask Ann\.$"):
            read_text_table(tmp_path / "t.csv", "ask Ann")


def test_a_damaged_package_and_a_folder(tmp_path):
    (tmp_path / "t.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(UserError, match=r"t\.csv\.gz cannot be read"):
        read_text_table(tmp_path / "t.csv.gz")
    with pytest.raises(UserError, match="is a folder, not a file: check the path"):
        read_text_table(tmp_path)
