"""Whatever users call their classes and files comes back as it was, and a spreadsheet runs none of it."""

import csv

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karat.errors import UserError
from karat.files.safe_csv import escaped, read_safe_csv, unescaped, write_safe_csv

HOSTILE = [
    *("<script>alert(1)</script>", "=1+1", "../../x", "NA", "null", "", "nan", "None", "True", "007", "1e5"),
    *("a,b", 'say "no"', "two\nlines", "cr\rhere", "crlf\r\n", "\ttab", "\rreturn", "@sum", "+1", "-1", "-x", "+x"),
    *("'=1", "''=1", "'", "don't", " =1", "ünïcode", "日本", "#REF!", "|cmd", "%0A", "\\N", "\ufeffbom"),
]


def test_hostile_text_comes_back(tmp_path):
    frame = pd.DataFrame({"id": HOSTILE, "index": range(len(HOSTILE)), "=label": HOSTILE[::-1]})
    write_safe_csv(frame, tmp_path / "t.csv")
    back = read_safe_csv(tmp_path / "t.csv")
    assert back["id"].tolist() == HOSTILE
    assert back["=label"].tolist() == HOSTILE[::-1]
    assert back["index"].tolist() == list(range(len(HOSTILE)))


def test_no_cell_starts_like_a_formula(tmp_path):
    write_safe_csv(pd.DataFrame({"id": HOSTILE}), tmp_path / "t.csv")
    with open(tmp_path / "t.csv", newline="", encoding="utf-8") as file:
        cells = [row[0] for row in csv.reader(file)][1:]
    starts = [cell for cell in cells if cell[:1] in ("=", "+", "-", "@", "\t", "\r")]
    assert starts == ["+1", "-1"]  # plain numbers


@settings(deadline=None)
@given(st.text(alphabet=st.sampled_from("'=+-@\t\r1e.x"), max_size=6))
def test_escaping_is_undone(text):
    assert unescaped(escaped(text)) == text


def test_columns_have_their_types(tmp_path):
    (tmp_path / "t.csv").write_text(
        'id,index,is_label_issue,label_quality,mean_weight\n7,3,True,0.5,\n"NA",4,False,1e-9,2\n'
    )
    table = read_safe_csv(tmp_path / "t.csv")
    assert table["id"].tolist() == ["7", "NA"]
    assert table["index"].dtype == "int64"
    assert table["is_label_issue"].tolist() == [True, False]
    assert table["is_label_issue"].dtype == bool
    assert table["label_quality"].tolist() == [0.5, 1e-9]
    assert table["mean_weight"].isna().tolist() == [True, False]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"id,index\na,x\n", "has 'x' as index of row 1: write a whole number"),
        (b"id,index\na,1.5\n", "has '1.5' as index of row 1: write a whole number"),
        (b"id,index\na,99999999999999999999\n", "has '99999999999999999999' as index of row 1: write a whole number"),
        (b"id,index\na,1\nb,9223372036854775808\n", "has '9223372036854775808' as index of row 2"),
        (b"id,trusted\na,perhaps\n", "has 'perhaps' as trusted of row 1: write true or false"),
        (b"", "is empty: export it again"),
        (b'id\n"open', "has rows that do not fit its first line .*: export it again"),
        (b"id,index\na,1,2\n", "has rows that do not fit its first line .*: export it again"),
        (b"id\n\xff\xfe\n", "is not text in UTF-8 .*: export it again"),
    ],
)
def test_files_that_are_none_get_one_sentence(tmp_path, content, message):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_safe_csv(tmp_path / "t.csv")
    with pytest.raises(UserError, match=r"There is no file .*missing\.csv: check the path"):
        read_safe_csv(tmp_path / "missing.csv")


def test_a_table_that_a_spreadsheet_saved_with_semicolons_is_read(tmp_path):
    file = tmp_path / "decisions.csv"
    file.write_text('\ufeffid;index;label\r\n\'=a,b;3;"x;y"\r\n', encoding="utf-8")
    assert read_safe_csv(file).to_dict("records") == [{"id": "=a,b", "index": 3, "label": "x;y"}]
