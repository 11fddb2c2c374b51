"""Algorithm 1 of *Distilling Effective Supervision from Severe Label Noise* (CVPR 2020), line by line.

| line | what | function |
|---|---|---|
| 1 | augmented views of the noisy batch | `karat.data.augmentation` |
| 2 | pseudo labels (eq. 3), KL consistency (eq. 4) | `pseudo_labels.pseudo_labels`, `.kl_consistency` |
| 3 | data coefficients ω*, λ* (eq. 5-7) | `coefficients.meta_coefficients`, with `look_ahead` and `directional` |
| 4 | split by ω* < T | `joint_batch.split_targets` |
| 5 | joint batch, mixed up (eq. 9) | `joint_batch.joint_batch` |
| 6 | total loss (eq. 8) | `losses.coefficient_losses`, `.views_loss`, `.mixed_losses`, `.mixed_loss` |
| 7 | one optimizer step | `karat.methods.ieg`, the step that calls all of these |

Pure functions of tensors; nothing here knows about data sets, devices, files or logs of metrics.
"""
