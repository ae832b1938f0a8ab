//! Every shopper's token, signed before the load begins, in one block of memory: a million
//! separate strings would cost the generator its cache.

/// Tokens of shoppers 0, 1, 2, ...
pub(super) struct TokenTable {
    text: String,
    ends: Vec<usize>,
}

impl TokenTable {
    /// Signs `count` tokens with `sign`, which gets the shopper's index.
    ///
    /// # Errors
    /// The first error of `sign`.
    pub(super) fn sign<E>(count: u32, sign: impl Fn(u32) -> Result<String, E>) -> Result<Self, E> {
        let mut tokens = Self { text: String::new(), ends: Vec::new() };
        for shopper in 0..count {
            tokens.text.push_str(&sign(shopper)?);
            tokens.ends.push(tokens.text.len());
        }
        Ok(tokens)
    }

    /// The token of `shopper`, which is one of those that were signed.
    pub(super) fn get(&self, shopper: u32) -> &str {
        let index = shopper as usize;
        let begin = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.text[begin..self.ends[index]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shopper_has_its_own_token() {
        let tokens = TokenTable::sign(1_000, |shopper| Ok::<_, ()>(format!("t{shopper}"))).unwrap();
        assert_eq!(tokens.get(0), "t0");
        assert_eq!(tokens.get(9), "t9");
        assert_eq!(tokens.get(10), "t10");
        assert_eq!(tokens.get(999), "t999");
    }
}
