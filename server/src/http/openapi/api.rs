//! The one way to add a route.

use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, on};

use super::operation::Operation;
use super::signature::Signature;
use crate::app::Shared;

/// Routes, and what each of them is. Lints forbid [`Router::route`] everywhere else, so that a
/// route without a description can't be made.
pub(crate) struct Api {
    router: Router<Arc<Shared>>,
    operations: Vec<Operation>,
}

macro_rules! methods {
    ($($name:ident $filter:ident $method:ident;)*) => {$(
        pub(crate) fn $name<H, T, U>(
            self,
            path: &'static str,
            handler: H,
            operation: Operation,
        ) -> Self
        where
            H: Handler<T, Arc<Shared>> + Signature<U>,
            T: 'static,
        {
            self.route(MethodFilter::$filter, Method::$method, path, handler, operation)
        }
    )*};
}

impl Api {
    /// No route yet.
    pub(crate) fn new() -> Self {
        Self { router: Router::new(), operations: Vec::new() }
    }

    methods! {
        get GET GET;
        post POST POST;
        put PUT PUT;
        delete DELETE DELETE;
    }

    #[expect(clippy::disallowed_methods, reason = "here its description goes with it")]
    fn route<H, T, U>(
        mut self,
        filter: MethodFilter,
        method: Method,
        path: &'static str,
        handler: H,
        operation: Operation,
    ) -> Self
    where
        H: Handler<T, Arc<Shared>> + Signature<U>,
        T: 'static,
    {
        let mut operation = operation.at(method, path);
        H::describe(&mut operation);
        self.operations.push(operation);
        self.router = self.router.route(path, on(filter, handler));
        self
    }

    /// Both, as one.
    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.operations.extend(other.operations);
        self
    }

    /// What serves them.
    pub(crate) fn into_router(self) -> Router<Arc<Shared>> {
        self.router
    }

    /// Their paths, each once.
    pub(crate) fn into_paths(self) -> Vec<&'static str> {
        let mut paths: Vec<_> = self.operations.iter().map(|operation| operation.path).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// What they are.
    pub(crate) fn into_operations(self) -> Vec<Operation> {
        self.operations
    }
}
