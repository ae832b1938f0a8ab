//! How many subscribers there may be, in all and of one user.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use engine::core::ids::UserId;

/// Subscribers at one time: each is a connection, a task and a few kilobytes.
const SUBSCRIBERS_MAX: usize = 4096;

/// Of one user: some tabs and a phone.
const OF_A_USER_MAX: usize = 8;

/// There is no place left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoPlace {
    /// For anybody.
    Full,
    /// For this user.
    TooManyOfOne,
}

#[derive(Default)]
struct Taken {
    total: usize,
    by_user: HashMap<UserId, usize>,
}

/// The places.
#[derive(Default)]
pub(crate) struct Places(Mutex<Taken>);

/// A place, for as long as it is held.
pub(crate) struct Place {
    places: Arc<Places>,
    user: UserId,
}

impl Places {
    /// A place for `user`.
    ///
    /// # Errors
    /// [`NoPlace`]
    pub(crate) fn take(self: &Arc<Self>, user: UserId) -> Result<Place, NoPlace> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.total >= SUBSCRIBERS_MAX {
            return Err(NoPlace::Full);
        }
        let count = taken.by_user.get(&user).copied().unwrap_or_default();
        if count >= OF_A_USER_MAX {
            return Err(NoPlace::TooManyOfOne);
        }
        taken.by_user.insert(user, count + 1);
        taken.total += 1;
        Ok(Place { places: Arc::clone(self), user })
    }

    /// How many are taken.
    pub(crate) fn taken(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).total
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.total = taken.total.saturating_sub(1);
        let left = taken.by_user.get(&self.user).map_or(0, |count| count.saturating_sub(1));
        match left {
            0 => drop(taken.by_user.remove(&self.user)),
            left => drop(taken.by_user.insert(self.user, left)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_takes_all_places_and_one_that_is_left_is_free_again() {
        let places = Arc::new(Places::default());
        let user = |id| UserId::new(id).unwrap();
        let mut own: Vec<Place> =
            (0..OF_A_USER_MAX).map(|_| places.take(user(1)).ok().unwrap()).collect();
        assert_eq!(places.take(user(1)).err(), Some(NoPlace::TooManyOfOne));
        own.pop();
        own.push(places.take(user(1)).ok().unwrap());
        let others = SUBSCRIBERS_MAX - own.len();
        let others: Vec<Place> =
            (0..others).map(|id| places.take(user(2 + id as u64)).ok().unwrap()).collect();
        assert_eq!(places.take(user(9_999_999)).err(), Some(NoPlace::Full));
        drop((own, others));
        assert_eq!(places.taken(), 0);
        assert!(places.0.lock().unwrap().by_user.is_empty());
    }
}
