import pytest
from making import encoded, picture

from karat.data.datasets import load_data, load_dataset
from karat.data.settings import DataSettings
from karat.errors import UserError

datasets = pytest.importorskip("datasets", reason="the extra huggingface is not installed")
datasets.disable_progress_bars()

NAMES = ["zebra", "ape", "cat"]


def part(labels, **columns):
    cells = [{"bytes": encoded(picture()), "path": None} for _ in labels]
    kinds = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)})
    made = datasets.Dataset.from_dict({"img": cells, "label": labels}, features=kinds)
    for name, values in columns.items():
        made = made.add_column(name, values)
    return made


def test_splits_class_names_and_images(tmp_path):
    parts = {"train": part([0, 1] * 3), "trusted": part([1, 0]), "validation": part([0])}
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "mine"))
    mine = load_dataset(str(tmp_path / "mine"))
    assert mine.name == "mine"
    assert mine.classes == ("zebra", "ape")  # in the order of the dataset; nothing is a cat
    assert mine.train.labels.tolist() == [0, 1] * 3 + [1, 0]
    assert mine.trusted.tolist() == [False] * 6 + [True] * 2
    assert len(mine.test) == 1
    assert mine.train.inputs[:].shape == (8, 3, 16, 16)
    assert mine.schema.path_column == "img"


def test_one_table_with_columns_for_parts_and_ids(tmp_path):
    ids = [f"row {number}" for number in range(6)]
    made = part([0, 1] * 3, trusted=[True, True, False, False, False, False], id=ids)
    made.save_to_disk(str(tmp_path / "mine"))
    mine = load_dataset(str(tmp_path / "mine"))
    assert mine.trusted.sum() == 2
    assert mine.names == tuple(ids)


def test_features(tmp_path):
    columns = {"x": [1.0, 2.0, 3.0, 4.0], "e": [[0.0, 1.0]] * 4, "label": ["a", "b"] * 2, "trusted": [1, 1, 0, 0]}
    datasets.Dataset.from_dict(columns).save_to_disk(str(tmp_path / "mine"))
    assert load_dataset(str(tmp_path / "mine")).schema.inputs == ("x", "e[0]", "e[1]")
    assert load_data(DataSettings(str(tmp_path / "mine"), features=["x"])).schema.inputs == ("x",)


def test_unusable_datasets(tmp_path):
    datasets.DatasetDict({"train": part([0, 1]), "extra": part([0, 1])}).save_to_disk(str(tmp_path / "mine"))
    with pytest.raises(UserError, match="has a split 'extra': save it with the splits train, trusted, test"):
        load_dataset(str(tmp_path / "mine"))
    part([0, -1, 1]).save_to_disk(str(tmp_path / "gap"))
    with pytest.raises(UserError, match=r"1 row has no label \(row 1\)"):
        load_dataset(str(tmp_path / "gap"))
    (tmp_path / "gap" / "state.json").write_text("{")
    with pytest.raises(UserError, match="is not a readable Hugging Face dataset"):
        load_dataset(str(tmp_path / "gap"))
