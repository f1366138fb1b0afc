//! The little linear algebra that a Gaussian process needs: a symmetric matrix as the product of a triangle with itself.

use crate::tune::random::elementary::ln;

/// The lower triangle, row after row.
pub(crate) struct Cholesky {
    size: usize,
    rows: Vec<f64>,
}

impl Cholesky {
    /// Of the matrix with this lower triangle, row after row. None: it is not positive definite.
    pub(crate) fn new(size: usize, mut rows: Vec<f64>) -> Option<Self> {
        for row in 0..size {
            let (above, current) = rows.split_at_mut(start(row));
            for column in 0..row {
                let other = &above[start(column)..start(column + 1)];
                let sum = dot(&current[..column], &other[..column]);
                current[column] = (current[column] - sum) / other[column];
            }
            let square = current[row] - dot(&current[..row], &current[..row]);
            // Not a number is refused too.
            if square.is_nan() || square <= 1e-14 {
                return None;
            }
            current[row] = square.sqrt();
        }
        Some(Self { size, rows })
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Half of the logarithm of the matrix's determinant.
    pub(crate) fn half_log_determinant(&self) -> f64 {
        (0..self.size).map(|row| ln(self.row(row)[row])).sum()
    }

    /// Solves with the triangle.
    pub(crate) fn forward(&self, mut right: Vec<f64>) -> Vec<f64> {
        for index in 0..self.size {
            let row = self.row(index);
            right[index] = (right[index] - dot(&row[..index], &right[..index])) / row[index];
        }
        right
    }

    /// Solves with the whole matrix.
    pub(crate) fn solve(&self, right: Vec<f64>) -> Vec<f64> {
        self.backward(self.forward(right))
    }

    /// Solves with the triangle turned over.
    pub(crate) fn backward(&self, mut right: Vec<f64>) -> Vec<f64> {
        for index in (0..self.size).rev() {
            let row = self.row(index);
            right[index] /= row[index];
            let solved = right[index];
            for (value, factor) in right[..index].iter_mut().zip(row) {
                *value -= factor * solved;
            }
        }
        right
    }

    fn row(&self, index: usize) -> &[f64] {
        &self.rows[start(index)..start(index + 1)]
    }
}

/// Where a row of a lower triangle begins.
fn start(row: usize) -> usize {
    row * (row + 1) / 2
}

/// In four sums that the processor can do at once, always the same four: the result is the same everywhere.
pub(crate) fn dot(left: &[f64], right: &[f64]) -> f64 {
    let mut sums = [0.0; 4];
    let (fours, others) = (left.chunks_exact(4), right.chunks_exact(4));
    let rest: f64 = fours.remainder().iter().zip(others.remainder()).map(|(left, right)| left * right).sum();
    for (left, right) in fours.zip(others) {
        for (sum, (left, right)) in sums.iter_mut().zip(left.iter().zip(right)) {
            *sum += left * right;
        }
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_system_is_solved_as_by_hand() {
        // [[4, 2, 2], [2, 5, 3], [2, 3, 6]] is the product of [[2], [1, 2], [1, 1, 2]] with itself.
        let factor = Cholesky::new(3, vec![4.0, 2.0, 5.0, 2.0, 3.0, 6.0]).expect("it is positive definite");
        assert_eq!(factor.rows, [2.0, 1.0, 2.0, 1.0, 1.0, 2.0]);
        assert_eq!(factor.forward(vec![2.0, 5.0, 8.0]), [1.0, 2.0, 2.5]);
        assert_eq!(factor.backward(vec![8.0, 7.0, 4.0]), [1.75, 2.5, 2.0]);
        assert_eq!(factor.solve(vec![8.0, 10.0, 11.0]), [1.0, 1.0, 1.0]);
        assert!((factor.half_log_determinant() - 8.0_f64.ln()).abs() < 1e-15);
        assert!(Cholesky::new(2, vec![1.0, 2.0, 1.0]).is_none(), "not positive definite");
    }

    #[test]
    fn long_products_are_summed_in_full() {
        let numbers: Vec<f64> = (0..11).map(f64::from).collect();
        assert_eq!(dot(&numbers, &numbers), 385.0);
    }
}
