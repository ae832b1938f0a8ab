//! What operators do: activities, their units, the catalogue, accounts, give-backs, and who may
//! come in.
//!
//! Every command carries who gave it and in which request, into the log.

mod accounts;
mod activities;
mod audit;
mod blacklist;
mod dead_letters;
mod export;
mod fields;
mod limits;
mod money;
mod operator;
mod page;
mod reconcile;
mod skus;
mod stock;

use super::openapi::{Api, Operation, Tag};
use super::problem::Code;
use accounts::{MadeJson, UserFields};

/// Everything below `/api/admin`.
pub(super) fn routes() -> Api {
    activities::routes()
        .merge(stock::routes())
        .merge(skus::routes())
        .merge(account_routes())
        .merge(blacklist::routes())
        .merge(limits::routes())
        .merge(dead_letters::routes())
        .merge(money::routes())
        .merge(audit::routes())
        .merge(export::routes())
        .merge(reconcile::routes())
}

/// Accounts.
fn account_routes() -> Api {
    Api::new()
        .post(
            "/api/admin/users",
            accounts::users,
            Operation::new(Tag::Catalogue, "createUsers", "Make accounts")
                .about(
                    "One (taken: 409), or a CSV of them: those that exist are kept, so that a list \
                     that was cut off can be sent again. All of them happen or none.",
                )
                .takes::<UserFields>()
                .takes_text(
                    "text/csv",
                    "Column `id`, and any of `username`, `role`, `receiver`, `phone`, `province`, \
                     `city`, `district`, `detail`, `password`, `password_hash`.",
                )
                .answers::<MadeJson>(201, "How many are new, and how many were there")
                .refuses(&[Code::Conflict, Code::Overloaded])
                .asks_sql(),
        )
        .put(
            "/api/admin/users/{id}/password",
            accounts::password,
            Operation::new(Tag::Catalogue, "setPassword", "Give an account a new password")
                .about("As `password`, or as `password_hash`: argon2id in PHC form.")
                .answers_nothing("It is the password from now on")
                .refuses(&[Code::Overloaded, Code::Conflict])
                .asks_sql(),
        )
}
