import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from karat.data.noise.label_files import load_labels, save_labels
from karat.data.noise.labels import NoisyLabels, corrupt
from karat.errors import UserError
from karat.noise_matrix import uniform_transition

ENDINGS = [".npz", ".csv"]


def noisy_labels(count=20, classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    true = torch.randint(classes, (count,), generator=generator)
    return corrupt(true, uniform_transition(classes, 0.5), generator)


@pytest.mark.parametrize("ending", ENDINGS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(count=st.integers(1, 50), classes=st.integers(2, 12), seed=st.integers(0, 2**32 - 1))
def test_round_trip(tmp_path, ending, count, classes, seed):
    file = tmp_path / f"labels{ending}"
    saved = noisy_labels(count, classes, seed)
    rows = torch.randperm(100)[:count]  # their places in the data
    save_labels(saved, rows, file)
    loaded = load_labels(file, rows, classes)
    assert torch.equal(loaded.given, saved.given)
    assert torch.equal(loaded.true, saved.true)
    assert loaded.classes == classes
    assert loaded.transition is None if ending == ".csv" else torch.equal(loaded.transition, saved.transition)
    assert [found.name for found in tmp_path.iterdir()] == [file.name]  # no temporary file stays


@pytest.mark.parametrize("ending", ENDINGS)
def test_round_trip_without_true_labels(tmp_path, ending):
    file = str(tmp_path / "new" / "folder" / f"labels{ending}")
    save_labels(NoisyLabels(torch.tensor([1, 0]), None, classes=2, transition=None), torch.arange(2), file)
    loaded = load_labels(file, torch.arange(2), 2)
    assert loaded.given.tolist() == [1, 0]
    assert loaded.true is None
    assert loaded.rate is None


def test_csv_is_plain(tmp_path):
    file = tmp_path / "labels.csv"
    labels = NoisyLabels(torch.tensor([1, 0]), torch.tensor([1, 1]), classes=2, transition=None)
    save_labels(labels, torch.tensor([4, 7]), file)
    assert file.read_text() == "index,given_label,true_label\n4,1,1\n7,0,1\n"


@pytest.mark.parametrize("ending", ENDINGS)
def test_labels_belong_to_rows_of_the_data_in_any_order_and_number(tmp_path, ending):
    """A file for rows 3, 5 and 9 answers for 9 and 3, and refuses row 4, which it does not know."""
    file = tmp_path / f"labels{ending}"
    labels = NoisyLabels(torch.tensor([0, 1, 2]), torch.tensor([2, 1, 0]), classes=3, transition=None)
    save_labels(labels, torch.tensor([3, 5, 9]), file)
    loaded = load_labels(file, torch.tensor([9, 3]), 3)
    assert loaded.given.tolist() == [2, 0]
    assert loaded.true.tolist() == [0, 2]
    with pytest.raises(UserError, match=r"no label for 1 of the 2 noisy examples, such as row 4: use the labels of"):
        load_labels(file, torch.tensor([3, 4]), 3)


def test_csv_from_a_spreadsheet(tmp_path):
    """Rows in another order, another column, a byte-order mark and Windows line ends; or with semicolons."""
    file = tmp_path / "labels.csv"
    file.write_bytes(b"\xef\xbb\xbfindex,name,given_label\r\n1,b.png,5\r\n0,a.png,3\r\n")
    assert load_labels(file, torch.arange(2), 6).given.tolist() == [3, 5]
    file.write_bytes(b'index;name;given_label\n1;"a;b,c";5\n0;a.png;3\n')
    assert load_labels(file, torch.arange(2), 6).given.tolist() == [3, 5]


@pytest.mark.parametrize("ending", ENDINGS)
def test_failed_write_keeps_the_old_file(tmp_path, ending):
    file = tmp_path / f"labels{ending}"
    save_labels(noisy_labels(), torch.arange(20), file)
    before = file.read_bytes()
    broken = NoisyLabels(torch.tensor([1, 0]), "no tensor", classes=2, transition=None)
    with pytest.raises((AttributeError, TypeError)):
        save_labels(broken, torch.arange(2), file)
    assert file.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("index,given_label\n0,1\n", r"no label for 1 of the 2 noisy examples, such as row 1"),
        (
            "index,given_label\n0,1\n1,4\n",
            r"given_label in .* reach from 1 to 4: number the 3 classes 0 to 2",
        ),
        ("index,given_label\n0,1\n1,-1\n", r"given_label in .* reach from -1 to 1: number the 3 classes 0 to 2\."),
        (
            "index,given_label,true_label\n0,1,0\n1,1,-2\n",
            r"true_label in .* reach from -2 to 0: number the 3 classes 0 to 2, and -1 what is none of them",
        ),
        ("index,given_label\n0,1\n1,0.5\n", r"given_label in .* type <U3: give one integer per example"),
        ("index,given_label\n0,1\n1\n", r"given_label in .* type <U1: give one integer per example"),
        ("index,given_label\n0,1,2\n", r"do not fit its first line .*: write the columns index, given_label"),
        ("index,given_label\n0,1\n1,99999999999999999999\n", "type <U20: give one integer per example"),
        ("index,given_label\n0,1\n0,1\n", "names an example twice: give each example one row"),
        ("given_label\n1\n", "1 labels and no index, and the data have train examples up to row 1: add a column index"),
        (
            "index,label\n0,1\n1,1\n",
            r"has no given_label: give index and given_label .* of its columns \(index, label\)",
        ),
        ("", "is empty: write the columns index, given_label"),
    ],
)
def test_unusable_csv(tmp_path, text, message):
    file = tmp_path / "labels.csv"
    file.write_text(text)
    with pytest.raises(UserError, match=message):
        load_labels(file, torch.arange(2), 3)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"given_label": np.array([0])}, "has 2 values of index and 1 of given_label: give as many of both"),
        (
            {"given_label": np.array([0.0, 1.0])},
            r"shape \(2,\) and type float64: give one integer per example",
        ),
        ({"given_label": np.array([[0, 1]])}, r"shape \(1, 2\) and type int64"),
        ({"given_label": np.array([0, 3])}, "reach from 0 to 3: number the 3 classes 0 to 2"),
        ({"labels": np.array([0, 1])}, "has no given_label: give index and given_label"),
        ({"given_label": np.array([0, 1]), "transition": np.eye(2)}, "3 classes need 3 rows"),
        (
            {"given_label": np.array([0, 1]), "transition": np.array(["x"])},
            "holds no floats: save the matrix",
        ),
        (
            {"given_label": np.array([0, None])},
            "not an .npz file of plain arrays .*: write it with numpy.savez",
        ),
    ],
)
def test_unusable_npz(tmp_path, arrays, message):
    file = tmp_path / "labels.npz"
    np.savez(file, index=np.arange(2), **arrays)
    with pytest.raises(UserError, match=message):
        load_labels(file, torch.arange(2), 3)


@pytest.mark.parametrize("ending", ENDINGS)
def test_missing_file(tmp_path, ending):
    with pytest.raises(UserError, match=r"There is no file .*: check the path"):
        load_labels(tmp_path / f"labels{ending}", torch.arange(2), 3)


def test_unknown_ending(tmp_path):
    file = tmp_path / "labels.txt"
    with pytest.raises(UserError, match=r"Unknown label file ending '\.txt'\..*Choose one of: \.csv, \.npz\."):
        save_labels(noisy_labels(), torch.arange(20), file)
    with pytest.raises(
        UserError, match=r"Unknown label file ending '\.txt'\..*Choose one of: \.csv, \.npy, \.npz, \.pt"
    ):
        load_labels(file, torch.arange(20), 4)


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_open_set_example_is_kept(tmp_path, ending):
    file = tmp_path / f"labels{ending}"
    save_labels(NoisyLabels(torch.tensor([1, 0]), torch.tensor([-1, 0]), 2, None), torch.arange(2), file)
    loaded = load_labels(file, torch.arange(2), 2)
    assert loaded.true.tolist() == [-1, 0]
    assert loaded.rate == 0.5


HUMAN = {"clean_label": [2, 0, 1], "worse_label": [1, 0, 2], "aggre_label": [2, 0, 0]}


def write_human_labels(folder, ending):
    """Write CIFAR-N in small: several arrays of given labels in the data's order, no index."""
    file = folder / f"human{ending}"
    arrays = {name: np.array(values) for name, values in HUMAN.items()}
    if ending == ".npz":
        np.savez(file, **arrays)
    elif ending == ".pt":
        torch.save(arrays, file)
    else:
        lines = [",".join(HUMAN), *(",".join(map(str, row)) for row in zip(*HUMAN.values(), strict=True))]
        file.write_text("\n".join(lines))
    return file


@pytest.mark.parametrize("ending", [".npz", ".csv", ".pt"])
def test_human_labels_by_column_in_the_order_of_the_data(tmp_path, ending):
    file = write_human_labels(tmp_path, ending)
    for column in ("worse_label", "aggre_label"):
        labels = load_labels(file, torch.tensor([2, 0]), 3, column=column, count=3)
        assert labels.given.tolist() == [HUMAN[column][2], HUMAN[column][0]]
        assert labels.true.tolist() == [1, 2]
    with pytest.raises(
        UserError, match=r"no random_label: .* columns \(aggre_label, clean_label, worse_label\) in noise"
    ):
        load_labels(file, torch.tensor([0]), 3, column="random_label")
    with pytest.raises(
        UserError, match="3 labels and no index, and the data have 4 train examples: add a column index"
    ):
        load_labels(file, torch.tensor([0]), 3, column="worse_label", count=4)
    with pytest.raises(UserError, match=r"clean_label of .* in 2 of 2 rows, so the file is in another order"):
        load_labels(file, torch.tensor([2, 0]), 3, column="worse_label", known=torch.tensor([2, 0]))


def test_class_names_and_the_truth_of_the_data(tmp_path):
    file = tmp_path / "labels.csv"
    file.write_text("label,true_name\ndog, x\n cat,x\n")
    rows, known = torch.arange(2), torch.tensor([0, 0])
    labels = load_labels(file, rows, 2, column="label", names=("cat", "dog"), known=known)
    assert labels.given.tolist() == [1, 0]
    assert labels.true.tolist() == [0, 0]
    with pytest.raises(
        UserError, match=r"column label .* has the class 'dog'\. Did you mean 'dogs'\? Write class numbers"
    ):
        load_labels(file, rows, 2, column="label", names=("cat", "dogs"))
    np.savez(tmp_path / "labels.npz", given_label=np.array(["dog", "cat"]), true_label=np.array(["cat", "cat"]))
    labels = load_labels(tmp_path / "labels.npz", rows, 2, names=("cat", "dog"))
    assert (labels.given.tolist(), labels.true.tolist()) == ([1, 0], [0, 0])


class Bomb:
    """An object whose unpickling leaves a trace."""

    exploded = False

    def __reduce__(self):
        return (setattr, (Bomb, "exploded", True))


def test_pickles_are_not_run(tmp_path):
    torch.save({"given_label": np.arange(2), "bomb": Bomb()}, tmp_path / "labels.pt")
    np.save(tmp_path / "labels.npy", np.array({"given_label": np.arange(2)}), allow_pickle=True)
    (tmp_path / "damaged.pt").write_bytes(b"nothing")
    for name, remedy in (
        ("labels.pt", "might run foreign code: ask whoever made it for the labels as .csv or .npz"),
        ("damaged.pt", "or is damaged"),
        ("labels.npy", "can run foreign code when it is read: use the labels as .csv, .npz or"),
    ):
        with pytest.raises(UserError, match=remedy):
            load_labels(tmp_path / name, torch.arange(2), 2)
    assert not Bomb.exploded
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(UserError, match="holds no dict of tensors or arrays: save one"):
        load_labels(tmp_path / "list.pt", torch.arange(2), 2)


def test_arrays_pickled_by_an_older_numpy(tmp_path):
    """CIFAR-N was written before numpy moved its constructor from numpy.core to numpy._core."""
    file = tmp_path / "old.pt"
    torch.save({"worse_label": np.array([1, 0])}, file, _use_new_zipfile_serialization=False)
    file.write_bytes(file.read_bytes().replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    assert load_labels(file, torch.arange(2), 2, column="worse_label").given.tolist() == [1, 0]
