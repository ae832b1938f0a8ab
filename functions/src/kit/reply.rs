//! An answer, as far as the contract fixes it.

use std::collections::BTreeMap;

use redis::{RedisResult, Value};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Nothing,
    Integer(i64),
    Text(String),
    List(Vec<Reply>),
    /// In no order.
    Map(BTreeMap<String, Reply>),
    /// Its first word, which is what clients match.
    Error(String),
}

impl Reply {
    pub fn of(result: RedisResult<Value>) -> Self {
        match result {
            Ok(value) => Self::from(value),
            Err(error) => match error.code() {
                Some(code) => Self::Error(code.to_owned()),
                None => panic!("the server does not answer: {error}"),
            },
        }
    }

    pub fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    pub fn integer(number: u64) -> Self {
        Self::Integer(i64::try_from(number).unwrap())
    }

    pub fn error(word: &str) -> Self {
        Self::Error(word.to_owned())
    }

    /// What `sluice_reserve` answers.
    pub fn purchase(code: i64, reservation: u64, order_no: &str, remaining: u64) -> Self {
        Self::List(vec![
            Self::Integer(code),
            Self::integer(reservation),
            Self::text(order_no),
            Self::integer(remaining),
        ])
    }

    /// The field of a map.
    pub fn field(&self, name: &str) -> &Self {
        match self {
            Self::Map(map) => map.get(name).unwrap_or_else(|| panic!("no {name} in {map:?}")),
            other => panic!("no map: {other:?}"),
        }
    }

    /// What kind of answer this is, for counting.
    pub fn label(&self) -> String {
        match self {
            Self::Integer(number) => number.to_string(),
            Self::List(items) => items.first().map_or_else(String::new, Self::label),
            Self::Map(map) if map.is_empty() => "empty".to_owned(),
            Self::Map(_) => "map".to_owned(),
            Self::Error(word) => word.clone(),
            Self::Nothing | Self::Text(_) => "other".to_owned(),
        }
    }
}

impl From<Value> for Reply {
    fn from(value: Value) -> Self {
        let utf8 = |bytes| String::from_utf8(bytes).unwrap();
        match value {
            Value::Nil => Self::Nothing,
            Value::Int(number) => Self::Integer(number),
            Value::BulkString(bytes) => Self::Text(utf8(bytes)),
            Value::SimpleString(text) => Self::Text(text),
            Value::Okay => Self::text("OK"),
            Value::Array(values) => Self::List(values.into_iter().map(Self::from).collect()),
            Value::Map(pairs) => {
                let pair = |(key, value)| match Self::from(key) {
                    Self::Text(key) => (key, Self::from(value)),
                    other => panic!("a map's key is {other:?}"),
                };
                Self::Map(pairs.into_iter().map(pair).collect())
            }
            other => panic!("no call answers {other:?}"),
        }
    }
}
