//! Pages of the lists that SQL answers.

use bridge::sql::queries::Window;

use crate::http::problem::Problem;

/// Rows of a page where nobody says.
const SIZE: u32 = 20;

/// The largest page.
const SIZE_MAX: u32 = 100;

/// A page that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Page {
    /// From 1.
    pub(super) number: u32,
    /// Rows of it.
    pub(super) size: u32,
}

impl Page {
    /// The page that `?page=&page_size=` name.
    ///
    /// # Errors
    /// `invalid_request`
    pub(super) fn of(number: Option<u32>, size: Option<u32>) -> Result<Self, Problem> {
        let (number, size) = (number.unwrap_or(1), size.unwrap_or(SIZE));
        if number == 0 || !(1..=SIZE_MAX).contains(&size) {
            let problem = format!("page starts at 1, page_size is 1 to {SIZE_MAX}");
            return Err(Problem::invalid(problem));
        }
        Ok(Self { number, size })
    }

    /// Its rows.
    pub(super) fn window(self) -> Window {
        let offset = u64::from(self.number - 1) * u64::from(self.size);
        Window { offset, count: self.size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_starts_at_one_and_has_a_hundred_rows_at_most() {
        let window = |number, size| Page::of(number, size).ok().map(Page::window);
        assert_eq!(window(None, None), Some(Window { offset: 0, count: 20 }));
        assert_eq!(window(Some(3), Some(100)), Some(Window { offset: 200, count: 100 }));
        for (number, size) in [(Some(0), None), (None, Some(0)), (None, Some(101))] {
            assert_eq!(window(number, size), None);
        }
    }
}
